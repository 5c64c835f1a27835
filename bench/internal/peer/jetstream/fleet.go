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
	return resting("NATS", "clients with one subscription; each pings every two minutes, observed for two minutes", lab.AsItComes)
}

// IdleTuned is Idle with the collector of harp's dispatcher.
func IdleTuned() measure.Subject {
	return resting("NATS"+lab.Tuned, "the same, its server with "+lab.AsDispatcher.String(), lab.AsDispatcher)
}

func resting(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var s said
			server, err := l.Start(ctx, ServerRole, serverArg{Collector: c}, &s)
			if err != nil {
				return nil, err
			}
			var parts lab.Closers
			parts.Add(server.Close)
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				return measure.Idle(ctx, l, server, p.Work, nats.DefaultPingInterval, func() error {
					return startResponders(ctx, l, &parts, lab.Clients{Addr: s.URL, Count: p.Work})
				})
			}, parts.Close), nil
		},
	}
}

func startResponders(ctx context.Context, l *lab.Lab, parts *lab.Closers, clients lab.Clients) error {
	c, err := l.Start(ctx, RespondersRole, clients, nil)
	if err != nil {
		return err
	}
	parts.Add(c.Close)
	return nil
}

// FanOut asks one question that many answer.
func FanOut() measure.Subject {
	return fanOut("NATS", "one request that all answer; nothing is stored, and the caller does not learn whom it did not reach", lab.AsItComes, lab.AsItComes)
}

// FanOutTuned is FanOut with the collectors of harp's dispatcher and agents.
func FanOutTuned() measure.Subject {
	return fanOut("NATS"+lab.Tuned, "the same, its server with "+lab.AsDispatcher.String()+", its clients with "+lab.AsAgent.String(),
		lab.AsDispatcher, lab.AsAgent)
}

func fanOut(name, note string, server, clients lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			url, err := startServer(ctx, l, &parts, serverArg{Collector: server})
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
					if err := startResponders(ctx, l, &parts, lab.Clients{Addr: url, Count: p.Work, Collector: clients}); err != nil {
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
