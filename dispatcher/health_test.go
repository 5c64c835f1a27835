package dispatcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
)

// Probes are answered with what Health says.
func TestHealthHandler(t *testing.T) {
	sys := newSystem(t, embedded, nil, dispatcher.Config{})
	healthz, readyz := dispatcher.HealthHandler(sys.d)
	ask := func(handler http.Handler, want int) dispatcher.Health {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		var h dispatcher.Health
		if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || w.Code != want {
			t.Errorf("%d, %s, %v, want %d", w.Code, w.Body, err, want)
		}
		return h
	}
	for _, handler := range []http.Handler{healthz, readyz} {
		if h := ask(handler, http.StatusOK); !h.Ready {
			t.Errorf("%+v", h)
		}
	}
	if err := sys.d.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, handler := range []http.Handler{healthz, readyz} {
		if h := ask(handler, http.StatusServiceUnavailable); h.Ready || !errors.Is(h.Checks["dispatcher"], harp.ErrClosed) {
			t.Errorf("%+v", h)
		}
	}
}

// What health is written as in JSON is read as the same health.
func TestHealthReadsBack(t *testing.T) {
	h := dispatcher.Health{Ready: true, Checks: map[string]error{
		"store": nil, "disk": harp.FailureOf(harp.ErrNoSpace).Err(), "registry": harp.FailureOf(errors.New("no such script")).Err(),
	}}
	text := must[[]byte](t)(json.Marshal(h))
	var read dispatcher.Health
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, h) || !errors.Is(read.Checks["disk"], harp.ErrNoSpace) {
		t.Errorf("%s is read as %+v", text, read)
	}
	if err := json.Unmarshal([]byte(`{"checks":5}`), &read); err == nil {
		t.Error("what is no health is read as one")
	}
}
