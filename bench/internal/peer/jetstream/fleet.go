package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// RunResponders is the Role of that name: clients that answer the same subject.
func RunResponders(ctx context.Context, l *lab.Lab, arg json.RawMessage, ready func(any) error) error {
	return lab.RunClients(ctx, arg, ready, func(parts *lab.Closers, url string) error { return respond(l, parts, url) })
}

// Idle has clients that do nothing.
func Idle() measure.Subject {
	return measure.Subject{
		Name: "NATS", Note: "clients with one subscription; pings every two minutes, which may fall into the time that is looked at",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var s said
			server, err := l.Start(ctx, ServerRole, serverArg{}, &s)
			if err != nil {
				return nil, err
			}
			var parts lab.Closers
			parts.Add(server.Close)
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				return measure.Idle(ctx, l, server, p.Work, func() error {
					return startResponders(ctx, l, &parts, s.URL, p.Work)
				})
			}, parts.Close), nil
		},
	}
}

func startResponders(ctx context.Context, l *lab.Lab, parts *lab.Closers, url string, n int) error {
	c, err := l.Start(ctx, RespondersRole, lab.Clients{Addr: url, Count: n}, nil)
	if err != nil {
		return err
	}
	parts.Add(c.Close)
	return nil
}

// FanOut asks one question that many answer.
func FanOut() measure.Subject {
	return measure.Subject{
		Name: "NATS", Note: "one request that all answer; nothing is stored, and nobody knows whom it did not reach",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			url, err := startServer(ctx, l, &parts, serverArg{})
			if err != nil {
				return nil, parts.Unless(err)
			}
			nc, err := connect(l, &parts, url)
			if err != nil {
				return nil, parts.Unless(err)
			}
			started := false
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				if !started {
					if err := startResponders(ctx, l, &parts, url, p.Work); err != nil {
						return nil, err
					}
					started = true
				}
				return requestMany(ctx, nc, p.Work)
			}, parts.Close), nil
		},
	}
}

func requestMany(ctx context.Context, nc *nats.Conn, n int) (measure.Sample, error) {
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed later
	begin := time.Now()
	if err := nc.PublishRequest(echoSubject, inbox, measure.Payload); err != nil {
		return nil, err
	}
	var first time.Duration
	for got := range n {
		if _, err := sub.NextMsgWithContext(ctx); err != nil {
			return nil, fmt.Errorf("%d of %d answers came: %w", got, n, err)
		}
		if got == 0 {
			first = time.Since(begin)
		}
	}
	return measure.Answers(n, first, time.Since(begin)), nil
}
