package tidegate

import (
	"context"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// bearer sends a key or token with each call.
type bearer struct {
	token  func(context.Context) (string, error)
	secure bool
}

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

// credentialOptions refuses to send a key in the clear over a network.
func (c *config) credentialOptions(target string) ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if c.tls != nil {
		transport = credentials.NewTLS(c.tls)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if c.bearer == nil {
		return options, nil
	}
	if c.tls == nil && !c.plaintext && !isLoopback(target) {
		return nil, badUse("target", "a key or token does not go unencrypted over a network; use WithTLS, or WithPlaintextCredentials")
	}
	return append(options, grpc.WithPerRPCCredentials(bearer{c.bearer, c.tls != nil})), nil
}

// isLoopback tells whether a gRPC target, `host:port` with or without a resolver's scheme, is this machine.
func isLoopback(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	if scheme, rest, found := strings.Cut(target, ":///"); found && (scheme == "dns" || scheme == "passthrough") {
		target = rest
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
