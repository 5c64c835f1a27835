package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

// stopGrace is how long a procedure may take to stop when its call was cancelled.
const stopGrace = 10 * time.Second

// sendCall sends the call. With an error it is over.
func (c *DirectCall) sendCall(req harp.Request) error {
	err := c.ctx.Err()
	if err == nil {
		c.exchange, err = c.agent.session.Exchange()
	}
	if err != nil {
		c.agent.calls.Done()
		return c.notSent(c.agent.dialer, err)
	}
	c.watchContext()
	c.exchange.Listen(c.handleReceived)
	err = c.sendOver(req)
	if err == nil && !c.setSent() {
		err = io.ErrClosedPipe
	}
	if err != nil {
		return c.sendFailed(err)
	}
	return nil
}

// sendOver sends the call to who may answer, and end the session, before Send returns:
// then the listener has heard all that came when this returns. Of a call that was given up
// it hears nothing more; one that is noted as sent is not given up any more.
func (c *DirectCall) sendOver(req harp.Request) error {
	body := wire.NewScratch()
	defer body.Free()
	body.B = appendCall(body.B, req)
	err := c.exchange.Send(wire.TypeCall, false, body.B)
	if errors.Is(err, transport.ErrSessionClosed) && c.setSent() {
		<-c.ended
	}
	return err
}

// appendCall appends the CALL of a request.
func appendCall(b []byte, req harp.Request) []byte {
	request := wire.NewScratch()
	defer request.Free()
	request.B = req.Append(request.B)
	call := wire.Call{
		Submission: harp.Submission{Request: request.B}, Attempt: 1,
		SilenceTimeout: int64(req.SilenceTimeout), MaxExecTime: int64(req.MaxExecTime), Window: wire.Window,
	}
	return wire.Append(b, &call)
}

// sendFailed ends the call unless its end was heard all the same. The error is why it is
// lost.
func (c *DirectCall) sendFailed(err error) error {
	c.handleReceived(transport.Frame{}, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.lost {
		return nil
	}
	return c.err
}

// watchContext lets cancelled run when the call's ctx ends before the call.
func (c *DirectCall) watchContext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch = context.AfterFunc(c.ctx, c.cancelled)
}

// setSent notes that the call was sent; false if it was given up before.
func (c *DirectCall) setSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = true
	return !c.givenUp
}

// cancelled asks the agent to stop and waits for the end, as long as the grace. A call
// that is not sent by then is given up.
func (c *DirectCall) cancelled() {
	defer c.agent.calls.Done()
	c.mu.Lock()
	sent := c.sent
	c.givenUp = !sent
	c.mu.Unlock()
	if !sent {
		c.exchange.Release() // ends a Send that waits
		<-c.ended
		return
	}
	_ = c.exchange.Send(wire.TypeCancel, false, wire.Encode(wire.Cancel{})) // heard sees what is wrong
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-c.ended:
	case <-grace.C:
		c.noteEnd(nil, c.lostBy(errNotStopped), true)
	}
}

var errNotStopped = fmt.Errorf("the procedure has not stopped within %v", stopGrace)

// notSent is why nothing was sent.
func (c *DirectCall) notSent(d dialer, err error) error {
	switch {
	case c.ctx.Err() != nil:
		f := failures.New("cancelled", "")
		f.Ran = harp.DidNotRun
		return &causeError{is: context.Cause(c.ctx), cause: f.Err()}
	case errors.Is(err, harp.ErrClosed):
		return harp.ErrClosed
	case errors.Is(err, transport.ErrTooManyExchanges):
		return tooManyErr(err)
	}
	return d.hostError("read", harp.ErrUnreachable, err)
}

// lostBy is the error of a call of which no end came.
func (c *DirectCall) lostBy(err error) error {
	f := failures.New("lost", harp.FailureOf(err).Message)
	f.Host, f.Stage, f.Fault = c.host, "read", harp.FaultNetwork
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began {
		f.Ran = harp.DidRun
	}
	return &causeError{is: err, cause: f.Err()}
}

func (c *DirectCall) callError(err error) error {
	return harp.WrapCallError(c.procedure, c.host, err)
}

// noteEnd notes how the call ended. Only the first end counts.
func (c *DirectCall) noteEnd(value harp.Value, err error, lost bool) {
	c.mu.Lock()
	over := c.over
	if !over {
		c.over, c.value, c.err, c.lost = true, value, c.withContextCause(err), lost
	}
	c.mu.Unlock()
	if over {
		return
	}
	c.exchange.Release()
	close(c.ended)
	if c.unwatch() { // else cancelled is at work
		c.agent.calls.Done()
	}
}

// withContextCause makes an error that of the call's ctx, too, if that has ended.
func (c *DirectCall) withContextCause(err error) error {
	if err == nil || c.ctx.Err() == nil {
		return err
	}
	return &causeError{is: context.Cause(c.ctx), cause: err}
}
