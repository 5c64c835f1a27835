package client

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// handleReceived handles a frame from the agent, or the error that ends the frames.
func (c *DirectCall) handleReceived(f transport.Frame, err error) {
	if err == nil {
		err = c.handleFrame(f)
		if err == nil && f.End && !c.isOver() {
			err = io.EOF // its last frame, and not the end of the call
		}
	}
	if errors.Is(err, transport.ErrNoRoom) { // it has looked at nothing
		err = c.handleNotNow(wire.NotNow{Reason: wire.NotNowBusy})
	}
	if err != nil {
		c.noteEnd(nil, c.lostBy(err), true)
	}
}

// handleFrame handles a frame. The error says what the agent did against the protocol.
func (c *DirectCall) handleFrame(f transport.Frame) error {
	switch f.Type {
	case wire.TypeStarted, wire.TypeStopping: // a stop is in the end, too
		c.mu.Lock()
		defer c.mu.Unlock()
		c.began = true
		return nil
	case wire.TypeRecords:
		due, err := c.handleRecords(f.Body)
		c.acknowledge(due)
		return err
	case wire.TypeEnd:
		return c.handleEnd(f.Body)
	case wire.TypeRefused:
		return handleMessage(f.Body, c.handleRefused)
	case wire.TypeNotNow:
		return handleMessage(f.Body, c.handleNotNow)
	}
	return fmt.Errorf("frame type %d in a direct call", f.Type)
}

func handleMessage[W any](body []byte, handle func(W) error) error {
	var w W
	if err := wire.DecodeBody(body, &w); err != nil {
		return err
	}
	return handle(w)
}

func (c *DirectCall) handleRecords(body []byte) (due bool, err error) {
	var w wire.Records
	if err := wire.DecodeBody(body, &w); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = true
	c.records = slices.Grow(c.records, len(w.Records))
	for i, rec := range w.Records {
		r, err := rec.Numbered(uint64(w.First)+uint64(i), 1)
		switch {
		case err != nil:
			return false, senseless(err)
		case r.Seq != c.next:
			return false, fmt.Errorf("record %d came instead of %d", r.Seq, c.next)
		}
		if c.held += weight(r); c.held > wire.Window+wire.MaxMessage {
			return false, errors.New("records beyond the window")
		}
		c.next++
		c.records = append(c.records, r)
	}
	wake.Signal(c.more)
	return c.dropLocked(), nil
}

// senseless is an error of what the agent said, which is not wrong with the call.
func senseless(err error) error {
	return fmt.Errorf("the agent's answer cannot be read: %v", err) //nolint:errorlint // on purpose
}

// handleEnd notes how the procedure ended: what was journalled first decides, a limit,
// a cancel or its own end.
func (c *DirectCall) handleEnd(body []byte) error {
	var w wire.End
	if err := wire.DecodeBody(body, &w); err != nil {
		return err
	}
	value, failure := w.Value, w.Failure
	switch {
	case w.Stopped != nil && w.Stopped.Cause == "":
		return senseless(errors.New("stopped without a cause"))
	case w.Gone:
		f := failures.New("lost", "the process in which it ran is gone")
		f.Type, f.Host, f.Ran, f.Fault = harp.LostAgentRestarted, c.host, harp.DidRun, harp.FaultAgent
		failure = f.Err()
	case w.Stopped != nil:
		failure = stopFailure(*w.Stopped, harp.FailureOf(failure)).Err()
	case failure == nil && w.Dropped:
		f := failures.New("no_space", "the agent dropped the value")
		f.Ran, f.Fault = harp.DidRun, harp.FaultAgent
		failure = f.Err()
	}
	if failure != nil {
		value = nil
	}
	c.noteEnd(value, failure, false)
	return nil
}

// stopFailure is that of a call which a cancel or a limit has ended, with what the
// procedure said last.
func stopFailure(w wire.Stopping, last harp.Failure) harp.Failure {
	f := failures.New("cancelled", last.Message)
	if w.Cause != wire.CauseCancel {
		f = failures.New("timeout", last.Message)
		f.Limit, f.LimitOf = time.Duration(w.Limit), w.Cause
	}
	f.Data, f.ExitCode = last.Data, last.ExitCode
	return f
}

func (c *DirectCall) handleRefused(w wire.Refused) error {
	if w.Failure == nil {
		return senseless(errors.New("refused without an error"))
	}
	return c.noteDenied(w.Failure)
}

func (c *DirectCall) handleNotNow(w wire.NotNow) error {
	f := failures.New("rejected", "the agent takes no calls now")
	f.Type = w.Reason
	return c.noteDenied(f.Err())
}

// noteDenied notes that the agent has not started the procedure. Once it has said that it had, it cannot say that.
func (c *DirectCall) noteDenied(err error) error {
	c.mu.Lock()
	began := c.began
	c.mu.Unlock()
	if began {
		return senseless(errors.New("not started, after it had begun"))
	}
	c.noteEnd(nil, err, false)
	return nil
}
