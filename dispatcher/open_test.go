package dispatcher_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/store/memory"
)

// A store is one dispatcher's: a second one is refused and leaves it to the first.
func TestAStoreOfTwo(t *testing.T) {
	st := memory.Open(nil)
	first := must[*dispatcher.Dispatcher](t)(dispatcher.Open(t.Context(), st, dispatcher.Config{Hosts: dispatcher.StaticHosts{{Name: "web01"}}}))
	for _, cfg := range []dispatcher.Config{{}, {Heartbeat: -1}} {
		_, err := dispatcher.Open(t.Context(), st, cfg)
		isAbout(t, err, "store")
	}
	must[*harp.Job](t)(first.Caller().Host("web01").Call(t.Context(), "p", nil))
	if err := first.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := dispatcher.Open(t.Context(), st, dispatcher.Config{})
	var field *harp.FieldError
	if err == nil || errors.As(err, &field) {
		t.Errorf("a closed store gives %v", err)
	}
}

// What is needed and not there is said at once, by its name.
func TestWhatIsNotThereIsNamed(t *testing.T) {
	_, err := dispatcher.Open(t.Context(), nil, dispatcher.Config{})
	isAbout(t, err, "store")
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	isAbout(t, sys.d.Serve(t.Context(), nil, nil), "listener")
	l := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	isAbout(t, sys.d.Serve(t.Context(), l, nil), "tls")
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener that is not served gives %v", err)
	}
}

// isAbout checks that an error is that of a field.
func isAbout(t *testing.T, err error, name string) {
	t.Helper()
	var field *harp.FieldError
	if !errors.As(err, &field) || field.Field != name {
		t.Errorf("got %v, want an error of %s", err, name)
	}
}
