package tidegate

import "testing"

// A key goes unencrypted to this machine only, unless forced.
func TestPlaintextKeys(t *testing.T) {
	loopback := []string{"127.0.0.1:8500", "localhost:8500", "[::1]:8500", "127.8.8.8", "unix:/run/tidegate", "dns:///localhost:1"}
	network := []string{"router.internal:8500", "10.0.0.1:8500", "[2001:db8::1]:8500", "localhost.example.com:1", "dns:///router:1"}
	for _, target := range loopback {
		client, err := NewClient(target, WithKey("tg_k"))
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		client.Close()
	}
	for _, target := range network {
		if _, err := NewClient(target, WithKey("tg_k")); err == nil {
			t.Errorf("%q: not refused", target)
		}
		if isLoopback(target) {
			t.Errorf("%q is not loopback", target)
		}
	}
	for _, option := range []ClientOption{WithTLS(nil), WithPlaintextCredentials()} {
		client, err := NewClient("router.internal:8500", WithKey("tg_k"), option)
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
	}
}

// The environment's key is guarded in the same way.
func TestKeyFromEnvironment(t *testing.T) {
	t.Setenv("TIDEGATE_KEY", "tg_k")
	if _, err := NewClient("router.internal:8500"); err == nil {
		t.Error("not refused")
	}
}

// The target is the environment's when none is given, else that of `tidegate up`.
func TestTargetFromEnvironment(t *testing.T) {
	client, err := NewClient("", WithKey("tg_k"))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	t.Setenv("TIDEGATE_TARGET", "router.internal:8500")
	if _, err := NewClient("", WithKey("tg_k")); err == nil {
		t.Error("not refused")
	}
	client, err = NewClient("localhost:8500", WithKey("tg_k"))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}
