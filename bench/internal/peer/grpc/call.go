package grpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/harpcaller/harp/bench/internal/lab"
	"github.com/harpcaller/harp/bench/internal/measure"
)

// Direct makes unary calls.
func Direct() measure.Subject {
	return direct("gRPC", "unary calls over one connection, server in a second process", lab.AsItComes)
}

// DirectTuned is Direct with the collector of harp's agent, which answers there.
func DirectTuned() measure.Subject {
	return direct("gRPC"+lab.Tuned, "the same, its server with "+lab.AsAgent.String(), lab.AsAgent)
}

func direct(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			cc, err := connect(ctx, l, &parts, c)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewEcho(func(ctx context.Context) ([]byte, error) {
				out := &wrapperspb.BytesValue{}
				err := cc.Invoke(ctx, echo, &wrapperspb.BytesValue{Value: measure.Payload}, out)
				return out.Value, err
			}, parts.Close), nil
		},
	}
}

// Live reads what a server streams.
func Live() measure.Subject {
	return live("gRPC", "server streaming, server in a second process", lab.AsItComes)
}

// LiveTuned is Live with the collector of harp's agent.
func LiveTuned() measure.Subject {
	return live("gRPC"+lab.Tuned, "the same, its server with "+lab.AsAgent.String(), lab.AsAgent)
}

func live(name, note string, c lab.Collector) measure.Subject {
	return measure.Subject{
		Name: name, Note: note,
		Setup: func(ctx context.Context, l *lab.Lab) (measure.Rig, error) {
			var parts lab.Closers
			cc, err := connect(ctx, l, &parts, c)
			if err != nil {
				return nil, parts.Unless(err)
			}
			return measure.NewRig(func(ctx context.Context, p measure.Point) (measure.Sample, error) {
				return measure.Timed(p.Work, func() error { return readLive(ctx, cc, p.Work) })
			}, parts.Close), nil
		},
	}
}

func readLive(ctx context.Context, cc *grpc.ClientConn, n int) error {
	s, err := cc.NewStream(ctx, &description.Streams[0], flood)
	if err != nil {
		return err
	}
	ask := &wrapperspb.BytesValue{Value: binary.BigEndian.AppendUint64(nil, uint64(n))} //nolint:gosec // not negative
	if err := errors.Join(s.SendMsg(ask), s.CloseSend()); err != nil {
		return err
	}
	for got := 0; ; got++ {
		err := s.RecvMsg(&wrapperspb.BytesValue{})
		if errors.Is(err, io.EOF) && got != n {
			return fmt.Errorf("%d of %d messages came", got, n)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
