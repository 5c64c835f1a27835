//go:build linux

package hostile

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// role is as whom a lie is told.
type role string

const (
	nobody     role = "nobody" // without a certificate, or with one that is no good
	caller     role = "caller"
	agent      role = "agent"
	dispatcher role = "dispatcher"
)

// lie is one row of the table.
type lie struct {
	name  string
	as    role
	to    role   // dispatcher, or agent
	hurts string // what it does to harp as it is: it is told in the long form only
	long  string // what it does to harp as it is in the long form; harp bears the short one
	tell  func(t *teller) error
}

// scene is the fleet that lies are told to.
type scene struct {
	ca         *authority
	dispatcher string // address
	agent      string // address of an agent that has no dispatcher
	host       string // that agent's
	called     string // the host of an agent that has the dispatcher
	calledAt   string // its address
}

// teller tells one lie. What it has opened is closed when its context ends.
type teller struct {
	*scene
	ctx  context.Context
	as   role
	to   role
	long bool

	work   sync.WaitGroup
	kept   func() // says that the lie is told and kept up
	source *atomic.Uint32
	epoch  int64 // of the last session as a dispatcher
}

// many is how many there are of something, in the short and in the long form.
func (t *teller) many(inShort, inLong int) int {
	if t.long {
		return inLong
	}
	return inShort
}

// hold keeps the lie up until it has been looked at.
func (t *teller) hold() error {
	t.kept()
	<-t.ctx.Done()
	return nil
}

// addr is where those are to whom the lie is told.
func (t *teller) addr() string {
	if t.to == agent {
		return t.agent
	}
	return t.dispatcher
}

// dial connects, from an address that is another for each connection, as honest ones are not
// its neighbours.
func (t *teller) dial() (net.Conn, error) { return t.dialTo(t.addr()) }

func (t *teller) dialTo(addr string) (net.Conn, error) {
	n := t.source.Add(1)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 66, byte(n>>3), byte(1+n%8))}}
	conn, err := d.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(t.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// protocols are the names of the sessions, by who is at either end.
var protocols = map[[2]role]string{
	{caller, dispatcher}: "harp-call/1",
	{agent, dispatcher}:  "harp-agent/1",
	{dispatcher, agent}:  "harp-agent/1",
	{caller, agent}:      "harp-direct/1",
}

// shake makes the handshake of TLS with a certificate, and with an exchange of keys on one of some curves.
func (t *teller) shake(conn net.Conn, protocol string, cert tls.Certificate, curves ...tls.CurveID) (*tls.Conn, error) {
	secured := tls.Client(conn, &tls.Config{
		CurvePreferences:   curves,
		Certificates:       []tls.Certificate{cert},
		NextProtos:         []string{protocol},
		InsecureSkipVerify: true, //nolint:gosec // it is the other side that has to look
		MinVersion:         tls.VersionTLS13,
	})
	return secured, secured.HandshakeContext(t.ctx)
}

// identified connects with the certificate of somebody.
func (t *teller) identified(as role, name string) (*tls.Conn, error) {
	return t.identifiedTo(t.addr(), t.to, as, name)
}

func (t *teller) identifiedTo(addr string, to, as role, name string) (*tls.Conn, error) {
	cert, err := t.ca.identify(string(as), name)
	if err != nil {
		return nil, err
	}
	conn, err := t.dialTo(addr)
	if err != nil {
		return nil, err
	}
	return t.prove(conn, protocols[[2]role{as, to}], cert)
}

// prove makes a handshake whose certificate must be taken.
func (t *teller) prove(conn net.Conn, protocol string, cert tls.Certificate) (*tls.Conn, error) {
	secured, err := t.shake(conn, protocol, cert)
	if err != nil {
		return nil, err
	}
	var taken [1]byte // says that the certificate is
	_, err = io.ReadFull(secured, taken[:])
	return secured, err
}

// session opens a session in which nothing was said yet.
func (t *teller) session(name string, handle func(*peer, frame)) (*peer, error) {
	return t.sessionAs(t.as, name, handle)
}

func (t *teller) sessionAs(as role, name string, handle func(*peer, frame)) (*peer, error) {
	conn, err := t.identified(as, name)
	if err != nil {
		return nil, err
	}
	return t.sessionOn(conn, as != agent, handle)
}

// sessionOn makes a session of a connection. An opener opens the stream of its frames.
func (t *teller) sessionOn(conn net.Conn, opener bool, handle func(*peer, frame)) (*peer, error) {
	l := newLink(conn, opener)
	var p *peer
	p = newPeer(l, func(f frame) {
		if handle != nil {
			handle(p, f)
		}
	})
	t.work.Go(l.readLoop)
	var err error
	if opener {
		p.main, err = l.openStream()
	} else {
		p.main, err = l.awaitStream(1)
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("no stream of frames: %w", err)
	}
	t.work.Go(p.frameLoop)
	return p, nil
}

// names numbers who tells lies, so that no two are the same, or after so many are again.
var names, nameCount atomic.Int64

// newName is a name that nobody had before, or not for long.
func newName(prefix string) string {
	n := names.Add(1)
	if most := nameCount.Load(); most > 0 {
		n %= most
	}
	return fmt.Sprintf("%s%d", prefix, n)
}

// hello is what begins a session, with more fields, or the same ones again.
func hello(more ...any) object {
	all := object{"v", version, "software", "liar", "instance", newID()}
	for i := 0; i < len(more); i += 2 {
		if at := slices.Index(all, more[i]); at >= 0 && at%2 == 0 { // a key that comes twice is another lie
			all[at+1] = more[i+1]
			continue
		}
		all = append(all, more[i], more[i+1])
	}
	return all
}

// callerSession is a session of a caller who is welcome.
func (t *teller) callerSession() (*peer, error) {
	p, err := t.sessionAs(caller, "liar", nil)
	if err != nil {
		return nil, err
	}
	if err := p.say(0, typeHello, 0, hello()); err != nil {
		return nil, err
	}
	_, err = p.expect(typeWelcome)
	return p, err
}

// liar is an agent that lies.
type liar struct {
	name       string
	hello      object // "": the usual
	facts      any    // nil: none
	procedures []any
	held       []any
	taken      int64
	handle     func(*peer, frame)
}

// agentSession is a session of an agent that is open for calls.
func (t *teller) agentSession(a liar) (*peer, error) {
	p, err := t.session(a.name, a.handle)
	if err != nil {
		return nil, err
	}
	return p, a.introduce(p)
}

// introduce says what an agent says when it connects.
func (a liar) introduce(p *peer) error {
	first := a.hello
	if first == nil {
		first = hello("boot", "boot", "journal", newID())
	}
	if err := p.say(0, typeHello, 0, first); err != nil {
		return err
	}
	if _, err := p.expect(typeWelcome); err != nil {
		return err
	}
	facts := a.facts
	if facts == nil {
		facts = object{"facts", user(object{})}
	}
	for _, m := range []struct {
		kind    byte
		message any
	}{
		{typeFacts, facts},
		{typeProcedures, object{"procs", list(a.procedures), "last", true}},
		{typeHeld, object{"attempts", list(a.held), "last", true, "taken", a.taken}},
	} {
		if err := p.say(0, m.kind, 0, m.message); err != nil {
			return err
		}
	}
	if _, err := p.expect(typeForget); err != nil {
		return err
	}
	return p.say(0, typeReady, 0, object{})
}

// procedure is one that an agent says it has.
func procedure(name string, more ...any) object {
	return append(object{"name", name, "sum", "a lie", "args", []byte(`{"type":"object"}`)}, more...)
}

// dispatcherSession is a session of a dispatcher that has greeted the agent, as soon as that has none
// with another store.
func (t *teller) dispatcherSession(welcome object) (*peer, error) {
	return t.dispatcherSessionWith(welcome, nil)
}

func (t *teller) dispatcherSessionWith(welcome object, handle func(*peer, frame)) (*peer, error) {
	for begun := time.Now(); ; {
		p, err := t.session("dispatcher", handle)
		if err == nil {
			err = greetAgent(p, welcome)
		}
		if err == nil || t.ctx.Err() != nil || time.Since(begun) > 10*time.Second {
			return p, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// greetAgent says what a dispatcher says to an agent, and waits until that takes calls.
func greetAgent(p *peer, welcome object) error {
	if _, err := p.expect(typeHello); err != nil {
		return err
	}
	if err := p.say(0, typeWelcome, 0, welcome); err != nil {
		return err
	}
	for {
		select {
		case f := <-p.greeted:
			if f.kind == typeReady {
				return nil
			}
			if last, _ := fields(f.body)["last"].(bool); last && f.kind == typeHeld {
				if err := p.say(0, typeForget, 0, object{"last", true}); err != nil {
					return err
				}
			}
		case <-p.over:
			return errGone
		}
	}
}

// welcome is what a dispatcher answers HELLO with, with more fields.
func welcome(store string, epoch int64, more ...any) object {
	return append(object{
		"v", version, "software", "liar", "store", store, "epoch", epoch,
		"beat", int64(10 * time.Second), "recon", int64(time.Second), "time", time.Now().UnixNano(), "max", 1024,
	}, more...)
}

// request is the bytes of a call's request, with more fields, or the same ones again.
func request(id, host, procedure string, args any, more ...any) []byte {
	return encode(append(object{"v", 1, "id", id, "host", host, "proc", procedure, "args", user(args)}, more...))
}

// submission is the body of SUBMIT.
func submission(req []byte, more ...any) object { return append(object{"req", req}, more...) }

// newID makes a UUID of version 7.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16|uint64(b[6]&0x0f|0x70)<<8|uint64(b[7]))
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// each does something so many times at once, as many as have a mind to.
func (t *teller) each(n int, do func(i int) error) error {
	const atOnce = 16
	errs := make(chan error, n)
	slots := make(chan struct{}, atOnce)
	for i := range n {
		slots <- struct{}{}
		t.work.Go(func() {
			defer func() { <-slots }()
			errs <- do(i)
		})
	}
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
