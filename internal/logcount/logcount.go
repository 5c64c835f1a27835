// Package logcount logs what others can make happen again and again: the first time, and
// from then on how often, once a minute. A peer that means harm, or one that is only
// misconfigured, does not fill the log with it.
package logcount

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	every = time.Minute
	// maxKeys is how many things are counted apart. All others share a line.
	maxKeys = 1024
	// others is the key of those.
	others = "others"
)

// Logger logs such lines. It is safe for concurrent use.
type Logger struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows; never held while logging
	counts  map[key]*count
	closed  bool
	telling sync.WaitGroup
}

// key is what a line is counted by.
type key struct {
	level       slog.Level
	message, by string
}

// count is how often it was, since it was last logged.
type count struct {
	times int
	args  []any // of the last time
	timer *time.Timer
}

// New returns a Logger that logs to log. It must be closed.
func New(log *slog.Logger) *Logger {
	return &Logger{log: log, counts: make(map[key]*count)}
}

// Warn logs a line the first time that it has this message and this key, by, as a host or
// an address. For a minute after it has been logged, and as long as there is more of it each
// minute, it is counted, and the last of it is logged with how many times it was.
func (l *Logger) Warn(by, message string, args ...any) {
	if l.countLine(key{slog.LevelWarn, message, by}, args) {
		l.log.Warn(message, args...)
	}
}

// Info is Warn for what is no trouble. The lines that are counted are logged as well, at the level of debugging.
func (l *Logger) Info(by, message string, args ...any) {
	level := slog.LevelDebug
	if l.countLine(key{slog.LevelInfo, message, by}, args) {
		level = slog.LevelInfo
	}
	l.log.Log(context.Background(), level, message, args...)
}

// countLine counts a line. It reports whether it is the first.
func (l *Logger) countLine(k key, args []any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return true
	}
	c := l.counts[k]
	if c == nil && len(l.counts) >= maxKeys {
		k.by = others
		c = l.counts[k]
	}
	if c == nil {
		c = &count{}
		c.timer = time.AfterFunc(every, func() { l.logCount(k) })
		l.counts[k] = c
		return true
	}
	c.times++
	c.args = args
	return false
}

// logCount logs how often a line was counted, and forgets it if that is never.
func (l *Logger) logCount(k key) {
	l.mu.Lock()
	c := l.counts[k]
	if c == nil || l.closed {
		l.mu.Unlock()
		return
	}
	times, args := c.times, c.args
	c.times, c.args = 0, nil
	if times == 0 {
		delete(l.counts, k)
	} else {
		c.timer.Reset(every)
	}
	l.telling.Add(1)
	l.mu.Unlock()
	defer l.telling.Done()
	if times > 0 {
		l.logTimes(k, times, args)
	}
}

func (l *Logger) logTimes(k key, times int, args []any) {
	l.log.Log(context.Background(), k.level, k.message, append(args, "times", times)...)
}

// Close logs what was counted and not told yet. Lines after it are logged as they come.
func (l *Logger) Close() {
	l.mu.Lock()
	l.closed = true
	counts := l.counts
	l.counts = nil
	l.mu.Unlock()
	for k, c := range counts {
		c.timer.Stop()
		if c.times > 0 {
			l.logTimes(k, c.times, c.args)
		}
	}
	l.telling.Wait()
}
