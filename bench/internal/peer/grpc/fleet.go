package grpc

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// ClientsRole is clients with an open stream each.
const ClientsRole = "grpc-clients"

// RunClients is the Role of that name.
func RunClients(ctx context.Context, l *lab.Lab, arg json.RawMessage, ready func(any) error) error {
	return lab.RunClients(ctx, arg, ready, func(parts *lab.Closers, addr string) error { return open(ctx, l, parts, addr) })
}

// open opens a connection with a stream on which the server has said something.
func open(ctx context.Context, l *lab.Lab, parts *lab.Closers, addr string) error {
	cc, err := dial(l, addr)
	if err != nil {
		return err
	}
	parts.Add(cc.Close)
	s, err := cc.NewStream(ctx, &description.Streams[1], idle)
	if err != nil {
		return err
	}
	return s.RecvMsg(&wrapperspb.BytesValue{})
}

// Idle has clients that do nothing.
func Idle() measure.Subject {
	return resting("gRPC", "clients with one open stream; without pings, observed for 100 s", lab.AsItComes)
}

// IdleTuned is Idle with the collector of harp's dispatcher.
func IdleTuned() measure.Subject {
	return resting("gRPC"+lab.Tuned, "the same, its server with "+lab.AsDispatcher.String(), lab.AsDispatcher)
}

func resting(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var s said
			server, err := l.Start(ctx, ServerRole, serverArg{c}, &s)
			if err != nil {
				return nil, err
			}
			var parts lab.Closers
			parts.Add(server.Close)
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				return measure.Idle(ctx, l, server, p.Work, 0, func() error {
					clients, err := l.Start(ctx, ClientsRole, lab.Clients{Addr: s.Addr, Count: p.Work}, nil)
					if err == nil {
						parts.Add(clients.Close)
					}
					return err
				})
			}, parts.Close), nil
		},
	}
}
