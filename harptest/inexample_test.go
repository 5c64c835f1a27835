package harptest_test

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
)

// exampleTB is the testing.TB that an example has not.
type exampleTB struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	cleanups []func() // guarded by mu
}

// inTest runs body as a test of its own.
func inTest(body func(testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &exampleTB{ctx: ctx}
	body(t)
	cancel()
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

func (t *exampleTB) Helper()                           {}
func (t *exampleTB) Context() context.Context          { return t.ctx }
func (t *exampleTB) Output() io.Writer                 { return io.Discard }
func (t *exampleTB) Error(args ...any)                 { panic(args) }
func (t *exampleTB) Errorf(format string, args ...any) { panic(append([]any{format}, args...)) }
func (t *exampleTB) Fatal(args ...any)                 { panic(args) }
func (t *exampleTB) Fatalf(format string, args ...any) { panic(append([]any{format}, args...)) }

func (t *exampleTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}
