package harptest_test

import (
	"context"
	"io"
	"testing"

	"github.com/harpcaller/harp/harptest"
)

// recordedTB is a test whose failures are counted.
type recordedTB struct {
	testing.TB
	ctx    context.Context
	clean  func()
	errors int
}

func (t *recordedTB) Helper()                  {}
func (t *recordedTB) Context() context.Context { return t.ctx }
func (t *recordedTB) Output() io.Writer        { return io.Discard }
func (t *recordedTB) Cleanup(f func())         { t.clean = f }
func (t *recordedTB) Error(...any)             { t.errors++ }
func (t *recordedTB) Errorf(string, ...any)    { t.errors++ }

// What makes no sense fails the test, and nothing else happens.
func TestMisuse(t *testing.T) {
	tb := &recordedTB{TB: t, ctx: t.Context()}
	sys := harptest.New(tb, harptest.Options{Agents: []string{"web01"}})
	for _, misuse := range []struct {
		name string
		do   func()
	}{
		{"a host that is not there", func() { sys.Reset("web02") }},
		{"to crash what is not there", func() { sys.CrashAgent("web02") }},
		{"to start what runs", func() { sys.StartAgent("web01") }},
		{"to start the dispatcher that runs", sys.StartDispatcher},
	} {
		tb.errors = 0
		if misuse.do(); tb.errors != 1 {
			t.Errorf("%s: %d errors", misuse.name, tb.errors)
		}
	}
	sys.CrashAgent("web01")
	sys.CrashDispatcher()
	for _, misuse := range []func(){
		sys.StopDispatcher, sys.CrashDispatcher,
		func() { sys.StopAgent("web01") }, func() { sys.CrashAgent("web01") }, func() { sys.WipeAgent("web01") },
	} {
		tb.errors = 0
		if misuse(); tb.errors != 1 {
			t.Errorf("of what is down: %d errors", tb.errors)
		}
	}
	sys.StartDispatcher()
	sys.StartAgent("web01")
	sys.WaitOnline("web01")
	tb.errors = 0
	if tb.clean(); tb.errors != 0 {
		t.Errorf("taking it down: %d errors", tb.errors)
	}
}
