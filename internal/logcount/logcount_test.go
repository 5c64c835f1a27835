package logcount_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp/internal/logcount"
)

// newLogger returns a Logger and what takes the lines that it logged since the last time.
func newLogger(t *testing.T) (*logcount.Logger, func() []string) {
	t.Helper()
	var out lines
	plain := slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey && a.Value.String() == slog.LevelWarn.String() {
			return slog.Attr{}
		}
		return a
	}}
	l := logcount.New(slog.New(slog.NewTextHandler(&out, &plain)))
	t.Cleanup(l.Close)
	return l, func() []string {
		synctest.Wait()
		return strings.Split(out.take(), "\n")
	}
}

// lines are what was logged.
type lines struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.out.Reset()
	return strings.TrimSuffix(l.out.String(), "\n")
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, logged := newLogger(t)
		for i := range 100 {
			l.Warn("a", "refused", "addr", "a", "n", i)
		}
		l.Warn("b", "refused", "addr", "b")
		l.Warn("a", "gone", "addr", "a")
		expect(t, logged(), "msg=refused addr=a n=0", "msg=refused addr=b", "msg=gone addr=a")
		time.Sleep(61 * time.Second)
		expect(t, logged(), "msg=refused addr=a n=99 times=99")
		l.Warn("a", "refused", "addr", "a", "n", 100)
		expect(t, logged(), "")
		time.Sleep(61 * time.Second)
		expect(t, logged(), "msg=refused addr=a n=100 times=1")
		time.Sleep(61 * time.Second)
		expect(t, logged(), "")
		l.Warn("a", "refused", "addr", "a", "n", 101)
		expect(t, logged(), "msg=refused addr=a n=101") // it was quiet for a minute
		l.Warn("a", "refused", "addr", "a", "n", 102)
		l.Close()
		expect(t, logged(), "msg=refused addr=a n=102 times=1")
		l.Warn("a", "refused", "addr", "a", "n", 103)
		expect(t, logged(), "msg=refused addr=a n=103")
	})
}

// TestLinesThatAreNoTrouble: what is counted is there for those who look for it.
func TestLinesThatAreNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, logged := newLogger(t)
		for i := range 3 {
			l.Info("a", "online", "n", i)
		}
		expect(t, logged(), "level=INFO msg=online n=0")
		time.Sleep(61 * time.Second)
		expect(t, logged(), "level=INFO msg=online n=2 times=2")
	})
}

// TestManyKeys checks that a flood from everywhere is a bounded number of lines.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, logged := newLogger(t)
		for i := range 5000 {
			l.Warn(fmt.Sprint(i), "refused")
		}
		if n := len(logged()); n != 1025 {
			t.Errorf("%d lines", n)
		}
		time.Sleep(61 * time.Second)
		expect(t, logged(), fmt.Sprint("msg=refused times=", 5000-1025))
	})
}
