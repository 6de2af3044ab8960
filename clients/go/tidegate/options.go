package tidegate

import (
	"context"
	"crypto/tls"
	"maps"

	"google.golang.org/grpc"
)

// ClientOption is an option of [NewClient].
type ClientOption func(*config)

type config struct {
	bearer    func(context.Context) (string, error)
	tls       *tls.Config
	plaintext bool
	inject    []func(ctx context.Context, headers map[string]string)
	dial      []grpc.DialOption
}

// WithKey authenticates with an API key. Without it, or a token, the key is taken from TIDEGATE_KEY in the environment; an empty one is
// none.
func WithKey(key string) ClientOption {
	if key == "" {
		return func(c *config) { c.bearer = nil }
	}
	return WithToken(func(context.Context) (string, error) { return key, nil })
}

// WithToken authenticates with a token that is asked for at each call, so that one that expires can be renewed.
func WithToken(token func(context.Context) (string, error)) ClientOption {
	return func(c *config) { c.bearer = token }
}

// WithTLS encrypts the connection; nil trusts the system's certificate authorities. A client certificate in it authenticates.
func WithTLS(settings *tls.Config) ClientOption {
	if settings == nil {
		settings = &tls.Config{}
	}
	return func(c *config) { c.tls = settings }
}

// WithPlaintextCredentials allows a key or token on an unencrypted connection that leaves this machine. For networks that encrypt by
// themselves.
func WithPlaintextCredentials() ClientOption {
	return func(c *config) { c.plaintext = true }
}

// WithHeaders sends these headers with every stream.
func WithHeaders(headers map[string]string) ClientOption {
	return WithInjector(func(_ context.Context, carrier map[string]string) { maps.Copy(carrier, headers) })
}

// WithInjector calls this for every stream to add headers that depend on its context, a trace above all. For OpenTelemetry:
//
//	tidegate.WithInjector(func(ctx context.Context, headers map[string]string) {
//		otel.GetTextMapPropagator().Inject(ctx, propagation.MapCarrier(headers))
//	})
func WithInjector(inject func(ctx context.Context, headers map[string]string)) ClientOption {
	return func(c *config) { c.inject = append(c.inject, inject) }
}

// WithDialOptions passes options to gRPC; they win over this package's own.
func WithDialOptions(options ...grpc.DialOption) ClientOption {
	return func(c *config) { c.dial = append(c.dial, options...) }
}
