package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/journal"
	"github.com/harpcaller/harp/internal/version"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/transport"
)

const (
	// maxPage is how long a page on the control exchange may be, and with it the
	// description of one procedure.
	maxPage = wire.MaxControl - 1<<10
	// maxFacts is how long what is known of the host may be: problems of it are told with it.
	maxFacts = maxPage - wire.MaxProblems*(wire.MaxProblemText+wire.MaxProblemCode+32)
	// pageProcedures and pageAttempts keep a page within the elements of a message.
	pageProcedures = 64
	pageAttempts   = 200
)

// errSuperseded ends a session when the dispatcher has opened another.
var errSuperseded = errors.New("agent: the dispatcher has opened another session")

// introduce is the beginning of a session with a dispatcher: who the agent is, what
// it offers, and what it holds of earlier sessions.
func (s *session) introduce(ctx context.Context) error {
	if err := s.agent.journal.repair(); err != nil {
		return fmt.Errorf("agent: no journal: %w", err)
	}
	s.about = s.facts(ctx) // first: the dispatcher greets one agent of a host at a time, and waits for no other
	j := s.agent.journal.current()
	s.greeted = time.Now()
	s.send(wire.TypeHello, s.hello(j))
	w, err := s.welcomed(ctx)
	if err != nil {
		return err
	}
	if err := s.agent.setSession(s, w); err != nil {
		return err
	}
	s.agent.dropStrangers()
	s.beat(time.Duration(w.Heartbeat))
	s.sendFacts()
	s.sendProcedures()
	if err := s.awaitBegun(ctx); err != nil {
		return err
	}
	if err := s.sendHeld(j); err != nil {
		return err
	}
	if err := s.reconcile(ctx); err != nil {
		return err
	}
	s.send(wire.TypeReady, wire.Ready{})
	return nil
}

// hello is what the agent says first.
func (s *session) hello(j *journal.Journal) wire.Hello {
	return wire.Hello{
		Version:  wire.Version,
		Features: features,
		Software: version.Software(),
		Instance: s.agent.instance,
		BootID:   bootID(),
		Journal:  j.ID(),
		Labels:   s.agent.cfg.Labels,
	}
}

// welcomed waits for the answer to HELLO.
func (s *session) welcomed(ctx context.Context) (wire.Welcome, error) {
	var w wire.Welcome
	f, err := s.control.Receive(ctx)
	switch {
	case err != nil:
		return w, err
	case f.Type == wire.TypeUnwelcome:
		return w, unwelcome(f.Body)
	case f.Type != wire.TypeWelcome:
		return w, fmt.Errorf("%w: frame type %d answers HELLO", transport.ErrProtocol, f.Type)
	}
	if err := wire.Decode(f.Body, &w); err != nil {
		return w, err
	}
	if w.Version != wire.Version {
		return w, fmt.Errorf("%w: the dispatcher speaks version %d of the protocol, this agent %d", harp.ErrRefused, w.Version, wire.Version)
	}
	if len(w.Store) > maxStoreID {
		return w, fmt.Errorf("%w: the store's id has %d bytes, at most %d", transport.ErrProtocol, len(w.Store), maxStoreID)
	}
	return w, nil
}

// unwelcome is the error that a dispatcher refused the agent with.
func unwelcome(body []byte) error {
	var m wire.Unwelcome
	if err := wire.Decode(body, &m); err != nil {
		return err
	}
	if m.Failure == nil {
		return fmt.Errorf("%w: no reason given", harp.ErrRefused)
	}
	return m.Failure
}

// errAnother ends a session of a second dispatcher.
var errAnother = fmt.Errorf("%w: agent: it has a session with a dispatcher that has another store", harp.ErrConflict)

// setSession makes s the session of the agent's dispatcher. The older one is closed and
// has let go of its attempts when setSession returns. The error is harp.ErrConflict while
// there is one of another dispatcher: what one of them knows the other does not.
func (a *Agent) setSession(s *session, w wire.Welcome) error {
	a.mu.Lock()
	if a.current != nil && a.current.store != w.Store {
		a.mu.Unlock()
		return errAnother
	}
	if highest := a.raiseEpochLocked(w.Store, w.Epoch); w.Epoch < highest {
		a.mu.Unlock()
		return fmt.Errorf("%w: epoch %d of a dispatcher that has had %d", transport.ErrProtocol, w.Epoch, highest)
	}
	s.epoch, s.store = w.Epoch, w.Store
	old := a.current
	a.current = s
	clear(a.unknown) // it says again what it does not know
	a.up.Store(&s.store)
	defer a.holdCommands()
	a.longest = min(max(time.Duration(w.Reconnect), defaultLongest), maxLongest)
	a.mu.Unlock()
	if old != nil {
		old.transport.Close(errSuperseded)
		<-old.over
	}
	return nil
}

// storeEpoch is the highest epoch that a dispatcher with a store has stated.
type storeEpoch struct {
	store string
	epoch int64
}

// raiseEpochLocked notes an epoch, and returns the highest of its store.
func (a *Agent) raiseEpochLocked(store string, epoch int64) (highest int64) {
	highest = epoch
	if i := slices.IndexFunc(a.epochs, func(e storeEpoch) bool { return e.store == store }); i >= 0 {
		highest = max(highest, a.epochs[i].epoch)
		a.epochs = slices.Delete(a.epochs, i, i+1)
	}
	a.epochs = append(a.epochs, storeEpoch{store, highest})
	a.epochs = a.epochs[max(len(a.epochs)-maxStores, 0):]
	return highest
}

// leave is take undone when the session is over.
func (a *Agent) leave(s *session) {
	a.mu.Lock()
	if a.current == s {
		a.current = nil
		a.up.Store(nil)
	}
	a.mu.Unlock()
	close(s.over)
	a.holdCommands()
	for _, at := range a.attempts.held() {
		at.reopen() // what waits for the dispatcher may not have to
	}
}

// holdCommands says to what runs whether who prints waits when there is no room:
// while a dispatcher is there that makes some.
func (a *Agent) holdCommands() {
	for _, at := range a.attempts.held() {
		at.hold()
	}
}

// facts are what is known of the host. That they cannot be had is no reason not to
// work.
func (s *session) facts(ctx context.Context) harp.Value {
	ctx, cancel := context.WithTimeout(ctx, factsTime)
	defer cancel()
	facts, err := s.findFacts(ctx)
	var v harp.Value
	if err == nil {
		facts = maps.Clone(facts)
		if facts == nil {
			facts = map[string]any{}
		}
		facts["supervised"] = s.agent.supervises()
		v, err = harp.NewValue(facts)
	}
	if err == nil && len(v) > maxFacts {
		err = fmt.Errorf("%d bytes, at most %d", len(v), maxFacts)
	}
	from := problemSource{code: harp.ProblemFacts}
	if err != nil {
		s.log.Error("no facts of this host", "error", err.Error())
		s.agent.problems.set(from, "no facts of this host: "+err.Error())
		return nil
	}
	s.agent.problems.set(from)
	return v
}

// errFactsHang is that Config.Facts does not heed its context.
var errFactsHang = fmt.Errorf("finding them has taken longer than %v, and goes on", factsTime)

// findFacts calls Config.Facts, one at a time, and waits for that as long as ctx lasts. One that takes longer is waited
// for by the scope.
func (s *session) findFacts(ctx context.Context) (facts map[string]any, err error) {
	select {
	case s.agent.finding <- struct{}{}:
	case <-ctx.Done():
		return nil, errFactsHang
	}
	found := make(chan struct{})
	var late map[string]any
	var lateErr error
	s.scope.work.Go(func() {
		defer func() { <-s.agent.finding }()
		late, lateErr = s.agent.cfg.Facts(ctx)
		close(found)
	})
	select {
	case <-found:
		return late, lateErr
	case <-ctx.Done():
		return nil, errFactsHang
	}
}

// sendFacts sends what is known of the host, and what is wrong with it.
func (s *session) sendFacts() {
	s.agent.lookAtCertificate()
	s.toldProblems = s.agent.problems.current()
	s.send(wire.TypeFacts, wire.Facts{Facts: s.about, Problems: s.agent.problems.list()})
}

// sendProcedures sends what the agent offers, in pages.
func (s *session) sendProcedures() {
	s.told = s.agent.catalogue.current()
	var page wire.Procedures
	size := 0
	for _, p := range s.agent.catalogue.all() {
		m := p.doc
		n := len(wire.Encode(m))
		if size+n > maxPage || len(page.Procedures) == pageProcedures {
			s.send(wire.TypeProcedures, page)
			page, size = wire.Procedures{}, 0
		}
		page.Procedures = append(page.Procedures, m)
		size += n
	}
	page.Last = true
	s.send(wire.TypeProcedures, page)
}

// welcome is the beginning of a direct session: the agent answers HELLO.
func (s *session) welcome(ctx context.Context, refusal error) error {
	var m wire.Hello
	if err := s.receive(ctx, wire.TypeHello, &m); err != nil {
		return err
	}
	if m.Version != wire.Version {
		refusal = fmt.Errorf("%w: this agent speaks version %d of the protocol, the caller %d", harp.ErrRefused, wire.Version, m.Version)
	}
	if refusal != nil {
		s.send(wire.TypeUnwelcome, wire.Unwelcome{Failure: refusal})
		return refusal
	}
	s.send(wire.TypeWelcome, wire.Welcome{
		Version:   wire.Version,
		Features:  features,
		Software:  version.Software(),
		Heartbeat: int64(defaultBeat),
		Time:      time.Now().UnixNano(),
		Max:       int64(s.agent.cfg.Limits.MaxAttempts),
	})
	s.beat(defaultBeat)
	return nil
}
