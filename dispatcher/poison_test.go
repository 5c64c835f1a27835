package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
	"github.com/harpcaller/harp/transport"
)

// padded is a submission of which signature and key id fill as many bytes as are said, both with it.
func padded(total int) (sub harp.Submission, id string) {
	id = harp.NewID()
	sub.Request = harp.Request{ID: id, Host: "web01", Procedure: "work"}.Encode()
	left := total - len(sub.Request)
	sub.Signature, sub.KeyID = bytes.Repeat([]byte{1}, left/2), strings.Repeat("k", left-left/2)
	return sub, id
}

// What fits into SUBMIT but not into CALL, with what the dispatcher adds, is refused: sent, it would
// end its agent's session again and again. What is accepted can be sent.
func TestWhatIsAcceptedCanBeSent(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		addr, tc, dial := sys.net.dial("dispatcher", strings.Repeat("n", 255), transport.RoleCaller)
		caller := newRawCaller(t, addr, tc, dial)
		submit := func(sub harp.Submission) transport.Frame {
			return must[transport.Frame](t)(caller.ask(t.Context(), wire.TypeSubmit, wire.Encode(sub)))
		}
		poison, id := padded(wire.MaxBody(wire.TypeSubmit) - 64)
		var failed wire.Failed
		if f := submit(poison); f.Type != wire.TypeFailed || wire.Decode(f.Body, &failed) != nil || !errors.Is(failed.Failure, harp.ErrInvalid) {
			t.Errorf("it is answered by frame %d, %v", f.Type, failed.Failure)
		}
		if _, err := sys.caller.Job(id).Status(t.Context()); !errors.Is(err, harp.ErrNotFound) {
			t.Errorf("its job: %v", err)
		}
		largest, _ := padded(wire.MaxSubmission)
		if f := submit(largest); f.Type != wire.TypeReply {
			t.Errorf("the largest is answered by frame %d", f.Type)
		}
		if m := expectCall(t, asked); len(m.call.Signature) != len(largest.Signature) {
			t.Errorf("it is sent with a signature of %d bytes, want %d", len(m.call.Signature), len(largest.Signature))
		}
		if agent.tr.Err() != nil {
			t.Errorf("the session ended: %v", agent.tr.Err())
		}
	})
}

// largerStore is a store whose requests are larger than may be submitted.
type largerStore struct{ store.Store }

func (s largerStore) Request(ctx context.Context, id string) (harp.Submission, error) {
	sub, err := s.Store.Request(ctx, id)
	sub.Signature = make([]byte, wire.MaxBody(wire.TypeSubmit))
	return sub, err
}

// A job that is stored and cannot be sent, whatever stored it, is rejected, and its host's session goes on.
func TestAStoredRequestThatCannotBeSentIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := newSystem(t, embedded, largerStore{memory.OpenDisk(memory.NewDisk(), nil)}, dispatcher.Config{})
		agent := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "i"))
		asked := agent.exchanges(t)
		synctest.Wait()
		in := harp.Queue(harp.Args{"q": 1})
		host := sys.caller.Host("web01")
		must[*harp.Job](t)(host.Call(t.Context(), "work", nil, in)) // at once: its request is at hand
		first := expectCall(t, asked)
		waits := interrupted{job: must[*harp.Job](t)(host.Call(t.Context(), "work", nil, in))}
		first.sendFrame(t, wire.TypeAccepted, false, wire.Accepted{Started: &wire.Started{Time: 1}})
		first.sendFrame(t, wire.TypeEnd, true, wire.End{Value: []byte{7}})
		first.expectAck(t)
		s := waits.status(t)
		if s.State != harp.StateRejected || s.Reason != "rejected" || !errors.Is(s.Err, harp.ErrRejected) || harp.RanOf(s.Err) != harp.DidNotRun {
			t.Errorf("it is %s (%s): %v", s.State, s.Reason, s.Err)
		}
		must[*harp.Job](t)(host.Call(t.Context(), "work", nil))
		expectCall(t, asked)
		if agent.tr.Err() != nil {
			t.Errorf("the session ended: %v", agent.tr.Err())
		}
	})
}

// What an agent says that is longer than any may be set to say is not kept, and is told as dropped; the job is over,
// and the session goes on.
func TestResultsAndRecordsBeyondTheirLimitAreDropped(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a, _, i, m := sys.started(t)
		long := must[harp.Value](t)(harp.NewValue(make([]byte, wire.MaxMessage)))
		fits := must[harp.Value](t)(harp.NewValue(make([]byte, wire.MaxMessage-5)))
		for n, v := range []harp.Value{long, fits} {
			m.sendFrame(t, wire.TypeRecords, false, wire.Records{First: int64(n), Records: []wire.Record{{Time: 1, Value: v}}})
			synctest.Wait()
		}
		m.sendFrame(t, wire.TypeEnd, true, wire.End{Value: long, Records: 2})
		m.expectAck(t)
		records := i.records(t)
		if len(records) != 2 || records[0].Value != nil || records[0].Truncated != uint64(len(long)) || len(records[1].Value) != len(fits) || records[1].Truncated != 0 {
			t.Errorf("there are %d records", len(records))
		}
		if s := i.status(t); s.State != harp.StateSucceeded || s.Reason != harp.ReasonValueDropped {
			t.Errorf("it is %s (%s)", s.State, s.Reason)
		}
		if a.tr.Err() != nil {
			t.Errorf("the session ended: %v", a.tr.Err())
		}
	})
}
