package demo

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// list collects what a procedure emits.
type list[M any] struct{ records []M }

func (l *list[M]) emit(m M) error {
	l.records = append(l.records, m)
	return nil
}

// typeOf is the type of a procedure's failure.
func typeOf(t *testing.T, err error) string {
	t.Helper()
	var remote *harp.RemoteError
	if !errors.As(err, &remote) {
		t.Fatalf("failed with %v, which is no failure with a type", err)
	}
	return remote.Type
}

func TestRegister(t *testing.T) {
	a := agent.New(agent.Config{Name: "demo1"})
	Register(a)
	var names []string
	for _, p := range a.Procedures() {
		names = append(names, p.Name)
		if p.Summary == "" {
			t.Errorf("%s has no summary", p.Name)
		}
		for _, param := range p.Params {
			if !described(p.Args, param) {
				t.Errorf("parameter %s of %s has no description", param, p.Name)
			}
		}
	}
	want := []string{"count", "disk.usage", "fail", "hello", "host.facts", "log.follow", "sleep"}
	if !slices.Equal(names, want) {
		t.Errorf("offers %q, want %q", names, want)
	}
}

// described reports whether a schema describes a parameter.
func described(schema []byte, param string) bool {
	var s struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
	}
	return json.Unmarshal(schema, &s) == nil && s.Properties[param].Description != ""
}

func TestHello(t *testing.T) {
	for name, want := range map[string]string{"Ada": "hello Ada from ", "": "hello from "} {
		got, err := hello(t.Context(), HelloArgs{Name: name})
		if err != nil || !strings.HasPrefix(got.Msg, want) {
			t.Errorf("hello %q = %+v, %v, want %q", name, got, err, want)
		}
	}
}

func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var got list[CountRecord]
		res, err := countNumbers(t.Context(), CountArgs{To: 3, Every: time.Second}, got.emit)
		if err != nil || res.Counted != 3 {
			t.Errorf("count = %+v, %v", res, err)
		}
		if want := []CountRecord{{1}, {2}, {3}}; !slices.Equal(got.records, want) {
			t.Errorf("records %v, want %v", got.records, want)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestCountStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		stop := errors.New("stop")
		time.AfterFunc(2500*time.Millisecond, func() { cancel(stop) })
		var got list[CountRecord]
		_, err := countNumbers(ctx, CountArgs{To: 100, Every: time.Second}, got.emit)
		if !errors.Is(err, stop) || len(got.records) != 2 {
			t.Errorf("stopped with %v after %d records", err, len(got.records))
		}
		if _, err := countNumbers(ctx, CountArgs{To: 100}, got.emit); !errors.Is(err, stop) {
			t.Errorf("without a pause it stopped with %v", err)
		}
	})
}

func TestCountRefusesNegative(t *testing.T) {
	for _, in := range []CountArgs{{To: -1}, {To: 1, Every: -1}} {
		if _, err := countNumbers(t.Context(), in, nil); typeOf(t, err) != "bad_arguments" {
			t.Errorf("count %+v failed with %v", in, err)
		}
	}
}

func TestFail(t *testing.T) {
	_, err := failOnPurpose(t.Context(), FailArgs{Type: "oops", Message: "no", Data: []int{1, 2}})
	var remote *harp.RemoteError
	if !errors.As(err, &remote) {
		t.Fatalf("failed with %v", err)
	}
	if remote.Type != "oops" || remote.Message != "no" || remote.Data.String() != "[1,2]" {
		t.Errorf("failed with %q, %q, %v", remote.Type, remote.Message, remote.Data)
	}
	if _, err := failOnPurpose(t.Context(), FailArgs{}); typeOf(t, err) != "asked_to_fail" {
		t.Errorf("without a type it failed with %v", err)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := sleep(t.Context(), SleepArgs{For: time.Hour})
		if err != nil || got.Slept != "1h0m0s" {
			t.Errorf("sleep = %+v, %v", got, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := sleep(ctx, SleepArgs{For: time.Hour}); !errors.Is(err, context.DeadlineExceeded) || got.Slept != "1m0s" {
			t.Errorf("sleep = %+v, %v", got, err)
		}
	})
}

func TestHostFacts(t *testing.T) {
	f, err := hostFacts(t.Context(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Hostname == "" || f.OS == "" || f.Kernel.Name == "" || f.CPU.Count < 1 {
		t.Errorf("facts lack what every system says: %+v", f)
	}
	if _, err := harp.NewValue(f); err != nil {
		t.Errorf("facts have no form on the wire: %v", err)
	}
}
