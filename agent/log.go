package agent

import (
	"bytes"
	"context"
	"log/slog"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/life"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
)

// Log returns a logger whose lines become records of kind log of the job that a
// procedure's context belongs to, in slog's text form without the time, which the
// record has. Lines that are longer than a record are cut. A line counts as a sign of
// life for the job's SilenceTimeout, waits for room as emit does, and is dropped once the
// context has ended and there is none. For any other context it is slog.Default.
func Log(ctx context.Context) *slog.Logger {
	at, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return slog.Default()
	}
	return slog.New(newLogHandler(at))
}

type attemptKey struct{}

// logHandler makes records of lines. Those made of one share the line being written.
type logHandler struct {
	slog.Handler
	line *line
}

// line is where the text of a line is written.
type line struct {
	at *attempt

	mu   sync.Mutex // guards what follows; held while one line is made, never while blocked
	text bytes.Buffer
}

func newLogHandler(at *attempt) slog.Handler {
	l := &line{at: at}
	return &logHandler{line: l, Handler: slog.NewTextHandler(&l.text, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})}
}

// Handle implements slog.Handler. Errors: as emit's.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	said, err := h.format(ctx, r)
	if err != nil {
		return err
	}
	at := h.line.at
	v, err := harp.NewValue(text.Shorten(said, at.limits.MaxRecord-life.RecordCost, cutMark))
	if err != nil {
		return err
	}
	at.watch.offered()
	return at.put(wire.Record{Kind: string(harp.KindLog), Value: v})
}

func (h *logHandler) format(ctx context.Context, r slog.Record) (string, error) {
	l := h.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
	err := h.Handler.Handle(ctx, r)
	return string(bytes.TrimSuffix(l.text.Bytes(), []byte("\n"))), err
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.line}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.line}
}

// warn logs of the attempt what peers can bring about again and again with calls of its procedure: the
// first time, and then how often.
func (at *attempt) warn(message string, args ...any) {
	of := at.info.Procedure
	at.agent.repeated.Warn(of, message, append(args, "procedure", of, "job", at.key.job, "attempt", at.key.number)...)
}

// log names the attempt in what is logged of it. There is rarely anything, so that a
// logger is not made for every attempt.
func (at *attempt) log() *slog.Logger {
	return at.agent.log.With("job", at.key.job, "attempt", at.key.number)
}
