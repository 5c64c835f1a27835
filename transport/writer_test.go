package transport

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorded is a stream whose writes are recorded, and wait for each other if they are to.
type recorded struct {
	mu     sync.Mutex
	writes [][]byte
	hold   chan struct{} // nil: writes do not wait
	fails  error
}

func (r *recorded) WriteWithin(p []byte, _ time.Duration) error {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails != nil {
		return r.fails
	}
	r.writes = append(r.writes, bytes.Clone(p))
	return nil
}

func (r *recorded) Read([]byte) (int, error) { return 0, io.EOF }
func (r *recorded) ID() uint32               { return 1 }
func (r *recorded) Shrink()                  {}

// all returns what was written, and how long the writes were.
func (r *recorded) all() (all []byte, lengths []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.writes {
		all = append(all, p...)
		lengths = append(lengths, len(p))
	}
	return all, lengths
}

// noMux is a Mux without a connection.
type noMux struct{ Mux }

func (noMux) Close()       {}
func (noMux) Cause() error { return nil }

// writing returns a session, whose end it is for the test to see to, that writes to r.
func writing(r *recorded) *Session {
	o := Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	return newSession(noMux{}, r, Peer{}, o, true)
}

// A short frame is one write; no write is longer than a record of TLS.
func TestWriteSizes(t *testing.T) {
	for _, c := range []struct{ body, writes int }{
		{0, 1},
		{1, 1},
		{writeSize - HeaderSize, 1},
		{writeSize - HeaderSize + 1, 2},
		{2*writeSize - HeaderSize, 2},
		{2*writeSize - HeaderSize + 1, 3},
		{1 << 20, 65},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorded{}
			s := writing(r)
			f := Frame{Type: 3, Body: bytes.Repeat([]byte{7}, c.body)}
			if err := s.control.Send(f.Type, f.End, f.Body); err != nil {
				t.Fatal(err)
			}
			s.Close(nil)
			all, lengths := r.all()
			if !bytes.Equal(all, f.append(nil)) {
				t.Errorf("a body of %d bytes is damaged", c.body)
			}
			if len(lengths) != c.writes {
				t.Errorf("a body of %d bytes took %d writes", c.body, len(lengths))
			}
			for _, n := range lengths {
				if n > writeSize {
					t.Errorf("%d bytes in one write", n)
				}
			}
		})
	}
}

// What is sent while a write is under way goes out together, in its order.
func TestWriterGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{hold: make(chan struct{})}
		s := writing(r)
		var sent []byte
		for i := range 50 {
			x, err := s.Exchange()
			if err != nil {
				t.Fatal(err)
			}
			f := Frame{Type: Type(i), Exchange: uint32(i + 1), Body: bytes.Repeat([]byte{byte(i)}, 100)}
			if err := x.Send(f.Type, f.End, f.Body); err != nil {
				t.Fatal(err)
			}
			sent = f.append(sent)
			synctest.Wait()
		}
		close(r.hold)
		s.Close(nil)
		all, lengths := r.all()
		if !bytes.Equal(all, sent) {
			t.Error("something else was written")
		}
		if len(lengths) != 2 || lengths[0] != 100+HeaderSize {
			t.Errorf("the writes had %v bytes", lengths)
		}
	})
}

// A write that fails ends the session, and every use of it says so from then on: nobody is
// told that something was sent that was not, nor left to wait for an answer.
func TestWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		r := &recorded{hold: make(chan struct{}), fails: broken}
		s := writing(r)
		begun, err := s.Exchange()
		if err == nil {
			err = begun.Send(1, false, make([]byte, 1000))
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range maxQueued/10_000 + 1 { // all that there is room for
			if err := begun.Send(1, false, make([]byte, 10_000)); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				x, err := s.Exchange()
				if err != nil {
					t.Error(err)
					return
				}
				defer x.Release()
				if err := x.Send(1, false, make([]byte, 1000)); !errors.Is(err, ErrSessionClosed) || !errors.Is(err, broken) {
					t.Errorf("Send: %v", err)
				}
				if _, err := x.Receive(t.Context()); !errors.Is(err, ErrSessionClosed) || !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("Receive: %v", err)
				}
			})
		}
		synctest.Wait() // all wait for room
		close(r.hold)
		all.Wait()
		<-s.Done()
		if err := s.Err(); !errors.Is(err, ErrSessionClosed) || !errors.Is(err, broken) {
			t.Errorf("the session ended with %v", err)
		}
	})
}

// A buffer that has grown is given back when the session rests, also where that is while
// something is written from it.
func TestRestWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorded{}
		s := writing(r)
		if err := s.control.Send(1, false, make([]byte, maxQueued/2)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.hold = make(chan struct{})
		s.out.sendBeat()
		synctest.Wait()
		s.rest()
		close(r.hold)
		synctest.Wait()
		if kept := cap(s.out.spare) + cap(s.out.buf); kept > smallBuffer || s.out.writing {
			t.Errorf("%d bytes are kept; writing: %v", kept, s.out.writing)
		}
		s.Close(nil)
	})
}
