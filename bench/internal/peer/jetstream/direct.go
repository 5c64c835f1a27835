package jetstream

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// echoSubject is what a server with a responder answers.
const echoSubject = "echo"

// Direct asks with request and reply.
func Direct() measure.Subject {
	return direct("NATS", "request and reply; server and responder in a second process, connected over TLS", lab.AsItComes)
}

// DirectTuned is Direct with the collector of harp's agent, which answers there.
func DirectTuned() measure.Subject {
	return direct("NATS"+lab.Tuned, "the same, its server and responder with "+lab.AsAgent.String(), lab.AsAgent)
}

func direct(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			nc, err := connectResponder(ctx, l, &parts, c)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewEcho(func(ctx context.Context) ([]byte, error) {
				m, err := nc.RequestWithContext(ctx, echoSubject, measure.Payload)
				if err != nil {
					return nil, err
				}
				return m.Data, nil
			}, parts.Close), nil
		},
	}
}

func connectResponder(ctx context.Context, l *lab.Lab, parts *lab.Closers, c lab.Collector) (*nats.Conn, error) {
	url, err := startServer(ctx, l, parts, serverArg{Responder: true, Collector: c})
	if err != nil {
		return nil, err
	}
	return connect(l, parts, url)
}

// respond answers until parts are closed.
func respond(l *lab.Lab, parts *lab.Closers, url string) error {
	nc, err := connect(l, parts, url)
	if err != nil {
		return err
	}
	if _, err := nc.Subscribe(echoSubject, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return err
	}
	return nc.Flush()
}
