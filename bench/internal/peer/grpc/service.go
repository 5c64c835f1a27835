// Package grpc does the work with gRPC.
package grpc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// The service is written by hand as protoc-gen-go-grpc would; its messages are
// protobuf's own BytesValue.
const (
	service = "bench.Bench"
	echo    = "/" + service + "/Echo"
	flood   = "/" + service + "/Flood"
	idle    = "/" + service + "/Idle"
)

var description = grpc.ServiceDesc{
	ServiceName: service,
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Echo", Handler: handleEcho}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Flood", Handler: handleFlood, ServerStreams: true},
		{StreamName: "Idle", Handler: handleIdle, ServerStreams: true, ClientStreams: true},
	},
}

func handleEcho(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // gRPC's signature
	in := &wrapperspb.BytesValue{}
	return in, decode(in)
}

// handleFlood sends as many messages as it is asked for.
func handleFlood(_ any, s grpc.ServerStream) error {
	in := &wrapperspb.BytesValue{}
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	for range binary.BigEndian.Uint64(in.Value) {
		if err := s.SendMsg(&wrapperspb.BytesValue{Value: measure.Payload}); err != nil {
			return err
		}
	}
	return nil
}

// handleIdle says that it is there, and waits until the client goes.
func handleIdle(_ any, s grpc.ServerStream) error {
	if err := s.SendMsg(&wrapperspb.BytesValue{}); err != nil {
		return err
	}
	return s.RecvMsg(&wrapperspb.BytesValue{})
}

// ServerRole serves.
const ServerRole = "grpc-server"

type serverArg struct {
	Collector lab.Collector `json:"collector,omitempty"`
}

type said struct {
	Addr string `json:"addr"`
}

// RunServer is the Role of that name.
func RunServer(ctx context.Context, l *lab.Lab, raw json.RawMessage, ready func(any) error) error {
	var arg serverArg
	if err := json.Unmarshal(raw, &arg); err != nil {
		return err
	}
	defer arg.Collector.Set()()
	tc, err := l.PeerTLS()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(tc)))
	s.RegisterService(&description, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(listener) }()
	if err := ready(said{listener.Addr().String()}); err != nil {
		return err
	}
	<-ctx.Done()
	s.Stop()
	return <-done
}

// connect starts a server in another process and connects to it.
func connect(ctx context.Context, l *lab.Lab, parts *lab.Closers, c lab.Collector) (*grpc.ClientConn, error) {
	var s said
	server, err := l.Start(ctx, ServerRole, serverArg{c}, &s)
	if err != nil {
		return nil, err
	}
	parts.Add(server.Close)
	cc, err := dial(l, s.Addr)
	if err != nil {
		return nil, err
	}
	parts.Add(cc.Close)
	return cc, nil
}

func dial(l *lab.Lab, addr string) (*grpc.ClientConn, error) {
	tc, err := l.PeerTLS()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(tc)))
}
