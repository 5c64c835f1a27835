// Package harp does the work with harp.
package harp

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// echo has the payload.
type echo struct {
	Payload []byte `json:"payload"`
}

// work answers with what it was given.
var work = harp.NewProc[echo, []byte]("bench.echo")

// flood says which records a procedure yields: so many, or as many as it can in a
// time.
type flood struct {
	Size    int           `json:"size"`
	Records int           `json:"records,omitempty"`
	For     time.Duration `json:"for,omitempty"`
}

var stream = harp.NewStreamProc[flood, []byte, int]("bench.flood")

// register gives an agent what it is called for.
func register(a *agent.Agent) {
	agent.Handle(a, work, func(_ context.Context, in echo) ([]byte, error) { return in.Payload, nil })
	agent.HandleStream(a, stream, func(_ context.Context, f flood, emit func([]byte) error) (int, error) {
		record := bytes.Repeat([]byte{0x5a}, f.Size)
		until := time.Now().Add(f.For)
		n := 0
		for n < f.Records || f.Records == 0 && (n%lookEvery != 0 || time.Now().Before(until)) {
			if err := emit(record); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	})
}

// lookEvery is after how many records the clock is looked at.
const lookEvery = 64

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
