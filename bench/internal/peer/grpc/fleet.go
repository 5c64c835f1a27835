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

type clientsArg struct {
	Addr  string `json:"addr"`
	Count int    `json:"count"`
}

// RunClients is the Role of that name.
func RunClients(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg clientsArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	var parts lab.Closers
	for range arg.Count {
		if err := open(ctx, l, &parts, arg.Addr); err != nil {
			return parts.Unless(err)
		}
	}
	if err := ready(nil); err != nil {
		return parts.Unless(err)
	}
	<-ctx.Done()
	return parts.Close()
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
	return measure.Subject{
		Name: "gRPC", Note: "clients with one open stream; no keepalive",
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var s said
			server, err := l.Start(ctx, ServerRole, nil, &s)
			if err != nil {
				return nil, err
			}
			var parts lab.Closers
			parts.Add(server.Close)
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				before, err := lab.RSS(server.PID())
				if err != nil {
					return nil, err
				}
				clients, err := l.Start(ctx, ClientsRole, clientsArg{s.Addr, p.Work}, nil)
				if err != nil {
					return nil, err
				}
				parts.Add(clients.Close)
				rested, err := l.Rest(ctx, server.PID())
				return measure.Idle(before, rested, p.Work), err
			}, parts.Close), nil
		},
	}
}
