package supervisor

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/harpcaller/harp/agent/internal/proc"
)

// remote is an attempt that a supervisor has, over its socket.
type remote struct {
	conn  net.Conn
	place place
	hello helloMessage
	loop  sync.WaitGroup
	gone  chan struct{} // closed when the connection is

	writing sync.Mutex

	mu        sync.Mutex // guards what follows
	following *following
	last      int64 // id
	closed    bool
	forgot    chan problem // gets the answer; nil: nobody asked
	outlived  bool         // processes outlive KILL
}

// following is one call of Follow.
type following struct {
	id   int64
	told chan told
	left chan struct{} // closed when nothing is to be told any more
	once sync.Once
}

func (f *following) leave() { f.once.Do(func() { close(f.left) }) }

// told is one thing that the supervisor told a follower.
type told struct {
	kind   byte
	n      int64
	record Record
	stop   Stop
	end    End
	err    error
}

// connect greets a supervisor. It closes conn if that fails; the error is ErrVersion, or
// ErrLost.
func connect(conn net.Conn, p place) (*remote, error) {
	c := &remote{conn: conn, place: p, gone: make(chan struct{})}
	in := newFrames(conn)
	if err := c.greet(in, protocolVersion); err != nil {
		drop(conn)
		return nil, err
	}
	c.loop.Go(func() { c.readLoop(in) })
	return c, nil
}

func (c *remote) greet(in *frames, version int) error {
	_ = c.conn.SetDeadline(time.Now().Add(helloTime)) // fails as the next write does
	err := send(c.conn, sayHello, helloMessage{Version: version})
	if err == nil {
		err = receive(in, tellHello, &c.hello)
	}
	if err != nil {
		return errors.Join(ErrLost, err)
	}
	_ = c.conn.SetDeadline(time.Time{})
	_, err = agree(version, c.hello.Version)
	return err
}

// readLoop hands what the supervisor tells to whom it is for.
func (c *remote) readLoop(in *frames) {
	defer close(c.gone)
	defer c.conn.Close()
	for {
		f, err := in.next()
		if err == nil {
			err = c.handleFrame(f)
		}
		if err != nil {
			return
		}
	}
}

func (c *remote) handleFrame(f frame) error {
	if f.kind == tellForgot {
		var p problem
		_, err := f.decode(&p)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.forgot != nil {
			c.forgot <- p
			c.forgot = nil
		}
		return err
	}
	id, t, err := understand(f)
	if err != nil || t.kind == 0 {
		return err
	}
	c.mu.Lock()
	to := c.following
	c.mu.Unlock()
	if to == nil || to.id != id {
		return nil
	}
	select {
	case to.told <- t:
	case <-to.left:
	}
	return nil
}

// understand decodes what is told a follower; a kind of 0 is none of that.
func understand(f frame) (id int64, t told, err error) {
	t.kind = f.kind
	switch f.kind {
	case tellRecord:
		id, t.n, t.record, err = decodeRecordFrame(f)
		t.record.Value = append([]byte{}, t.record.Value...)
	case tellStopping:
		var m stoppingMessage
		_, err = f.decode(&m)
		id, t.stop = m.ID, m.Stop
	case tellEnd:
		var m endMessage
		var raw []byte
		raw, err = f.decode(&m)
		id, t.end = m.ID, m.End
		if len(raw) > 0 {
			t.end.Result = append([]byte{}, raw...)
		}
	case tellFailed:
		var m failedMessage
		_, err = f.decode(&m)
		id, t.err = m.ID, m.err()
	default:
		t.kind = 0
	}
	return id, t, err
}

func (c *remote) Started() time.Time { return time.Unix(0, c.hello.Started).UTC() }

func (c *remote) Follow(ctx context.Context, from int64, record func(int64, Record) error, stopping func(Stop)) (End, error) {
	f := c.follow()
	defer f.leave()
	if err := c.say(sayFollow, followMessage{f.id, from}); err != nil {
		return End{}, c.lost()
	}
	for {
		t, err := c.await(ctx, f)
		if err != nil {
			return End{}, err
		}
		switch t.kind {
		case tellRecord:
			if err := record(t.n, t.record); err != nil {
				c.unfollow(f)
				return End{}, err
			}
		case tellStopping:
			c.mu.Lock()
			c.outlived = len(t.stop.Left) > 0
			c.mu.Unlock()
			stopping(t.stop)
		case tellEnd:
			return t.end, nil
		case tellFailed:
			return End{}, t.err
		}
	}
}

// follow makes a new follower the one.
func (c *remote) follow() *following {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.following != nil {
		c.following.leave()
	}
	c.last++
	c.following = &following{id: c.last, told: make(chan told, 16), left: make(chan struct{})}
	return c.following
}

// await returns the next thing that a follower is told.
func (c *remote) await(ctx context.Context, f *following) (told, error) {
	if ctx.Err() != nil {
		c.unfollow(f)
		return told{}, ctx.Err()
	}
	select {
	case t := <-f.told:
		return t, nil
	case <-f.left:
		return told{}, c.left()
	case <-ctx.Done():
		c.unfollow(f)
		return told{}, ctx.Err()
	case <-c.gone:
	}
	select {
	case t := <-f.told: // before it went
		return t, nil
	default:
		return told{}, c.lost()
	}
}

// left is why a follower is told nothing more.
func (c *remote) left() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return ErrReplaced
}

// unfollow says that nobody is to be told more.
func (c *remote) unfollow(f *following) {
	f.leave()
	_ = c.say(sayUnfollow, followMessage{ID: f.id}) // if the supervisor is gone nobody is told more
}

// lost is why there is no connection.
func (c *remote) lost() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	return ErrLost
}

func (c *remote) say(kind byte, v any) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return send(c.conn, kind, v)
}

// What cannot be said to a supervisor that is gone is seen by who follows.

func (c *remote) Keep(next int64)   { _ = c.say(sayKeep, keepMessage{next}) }
func (c *remote) Hold(on bool)      { _ = c.say(sayHold, holdMessage{on}) }
func (c *remote) Stop(cause string) { _ = c.say(sayStop, stopMessage{Cause: cause}) }
func (c *remote) Kill(cause string) { _ = c.say(sayStop, stopMessage{Cause: cause, Now: true}) }

func (c *remote) Forget() error {
	answer := make(chan problem, 1)
	c.mu.Lock()
	c.forgot = answer
	c.mu.Unlock()
	err := c.say(sayForget, struct{}{})
	var p problem
	if err == nil {
		select {
		case p = <-answer:
		case <-c.gone:
			err = c.lost()
			select {
			case p = <-answer:
				err = nil
			default:
			}
		}
	}
	switch {
	case err == nil && p != problem{}:
		return p.err()
	case err == nil || !c.place.exists():
		c.place.reap(c.hello.Supervisor)
		return nil
	}
	return c.lost()
}

func (c *remote) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.following != nil {
		c.following.leave()
	}
	outlived := c.outlived
	c.mu.Unlock()
	drop(c.conn)
	c.loop.Wait()
	if c.isTied() && !outlived {
		c.place.reap(c.hello.Supervisor) // it ends the command now
	}
	return nil
}

// isTied reports whether the supervisor ends with this process.
func (c *remote) isTied() bool { return c.place == place{} }

// EndOrphans ends what a supervisor has left that died before its agent.
func (c *remote) EndOrphans(ctx context.Context, grace time.Duration) error {
	if !c.isTied() {
		return nil // Attach does
	}
	c.place.reap(c.hello.Supervisor)
	_, err := proc.EndOrphans(ctx, c.hello.Leader, c.hello.Cgroup, c.hello.Key.Job, c.hello.Key.Attempt, grace)
	if err == nil {
		secretDir{path: c.hello.Secrets}.remove()
	}
	return err
}
