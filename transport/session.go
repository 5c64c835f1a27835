package transport

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp/internal/wake"
	"github.com/harpcaller/harp/internal/workers"
)

// Options are the settings of a session. The zero value works.
type Options struct {
	// Logger gets one line when the peer breaks the protocol, and at debug level
	// what yamux has to say. Default: slog.Default().
	Logger *slog.Logger
	// Warn gets that line in the place of Logger, if it is set, with the identity by which
	// such lines may be counted: a peer can break the protocol again and again.
	Warn func(by, message string, args ...any)
	// MaxFrame returns the longest body this side receives of a type, at most
	// [MaxFrame]. It must not block. Default: 128 KiB for every type.
	MaxFrame func(Type) int
	// MaxExchanges is how many exchanges may be under way. The opener begins no more. The
	// acceptor, for which an exchange counts until its handler has returned, ends the
	// session at more than twice the number. Default: 4096.
	MaxExchanges int
	// Budget bounds what the peers of all sessions that share it can make this side hold.
	// Default: one for this session alone.
	Budget *Budget
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if log := o.Logger; o.Warn == nil {
		o.Warn = func(_, message string, args ...any) { log.Warn(message, args...) }
	}
	if o.MaxExchanges <= 0 {
		o.MaxExchanges = defaultMaxExchanges
	}
	if o.Budget == nil {
		o.Budget = NewBudget()
	}
	return o
}

// Session is a connection in which one side, the opener, begins exchanges and the
// other, the acceptor, answers them. What concerns the session as a whole is said in an
// exchange that both have from the beginning, [Session.Control].
//
// Its methods are safe for concurrent use.
type Session struct {
	mux     Mux
	peer    Peer
	options Options
	opener  bool
	control *Exchange
	out     writer
	bodies  bodies
	beat    heartbeat
	budget  *sessionBudget

	born  time.Time
	heard atomic.Int64 // when the session last began to listen again, since born

	waiting       atomic.Int64  // bytes of the frames that wait in exchanges
	mayWait       atomic.Int64  // so many of them may; the reader's goroutine changes it
	refusals      *limiter      // of exchanges for which there was no room; the reader's
	inline        int64         // what was paid for a long body that is being read with its frame; the reader's
	inlineControl int64         // the same of the control exchange
	resting       atomic.Bool   // rest is under way
	full          atomic.Bool   // the reader waits for fewer
	room          chan struct{} // 1 slot: there are fewer

	running sync.WaitGroup // handlers
	workers workers.Pool   // what they run in

	dying    chan struct{} // closed when the session ends
	readOver chan struct{} // closed when nothing is read any more
	done     chan struct{} // closed when its goroutines have returned
	tasks    sync.WaitGroup

	mu        sync.Mutex           // guards what follows; never held while blocked
	exchanges map[uint32]*Exchange // that are not over, by number
	count     int                  // those and, at the opener, the ones whose first frame was not sent yet
	prepaid   int                  // exchanges that the budget was paid for and that are not there
	last      uint32               // the highest number of an exchange so far
	handle    func(x *Exchange, first Frame)
	reading   bool  // somebody reads, or has
	reason    error // why the session ended
	after     error // what is returned of its use since
}

func newSession(m Mux, main Stream, peer Peer, o Options, opener bool) *Session {
	s := &Session{
		mux:       m,
		peer:      peer,
		options:   o,
		opener:    opener,
		budget:    o.Budget.join(peer.Identity),
		born:      time.Now(),
		room:      make(chan struct{}, 1),
		dying:     make(chan struct{}),
		readOver:  make(chan struct{}),
		done:      make(chan struct{}),
		exchanges: make(map[uint32]*Exchange),
	}
	s.mayWait.Store(freeWaiting)
	s.out.init(s, main)
	s.bodies.init(s)
	s.beat.session = s
	s.control = &Exchange{session: s}
	s.exchanges[0] = s.control
	return s
}

// Peer returns who is at the other end.
func (s *Session) Peer() Peer { return s.peer }

// Control returns the exchange for what concerns the session as a whole. It ends with the
// session.
func (s *Session) Control() *Exchange { return s.control }

// RefuseControl makes any further frame of the control exchange but a heartbeat [ErrProtocol]. It is for
// sessions in which nothing comes there: frames that nobody takes would keep the session from being
// read, and hide that the peer is silent.
func (s *Session) RefuseControl() {
	s.control.Listen(func(f Frame, err error) {
		if err == nil {
			s.failSession(fmt.Errorf("%w: frame of type %d in the control exchange", ErrProtocol, f.Type))
		}
	})
}

// Exchange begins an exchange. Only the opener may. Nothing is sent by it.
//
// The error is [ErrTooManyExchanges], [ErrSessionClosed], or [ErrProtocol] for an acceptor.
func (s *Session) Exchange() (*Exchange, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.after != nil:
		return nil, s.after
	case !s.opener:
		return nil, fmt.Errorf("%w: this side of the session begins no exchange", ErrProtocol)
	case s.count >= s.options.MaxExchanges:
		return nil, ErrTooManyExchanges
	}
	s.count++
	return &Exchange{session: s}, nil
}

// numberExchange gives an exchange its number, in the order in which first frames are sent. The
// error is [ErrSessionClosed].
func (s *Session) numberExchange(x *Exchange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.after != nil {
		return s.after
	}
	for s.last++; s.exchanges[s.last] != nil; s.last++ { // 0, the control's, too
	}
	x.number = s.last
	s.exchanges[x.number] = x
	return nil
}

// forgetExchange lets frames of an exchange be ignored from now on.
func (s *Session) forgetExchange(x *Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.number != 0 {
		delete(s.exchanges, x.number)
	}
	s.count--
	if x.price == exchangePrice && s.prepaid < maxPrepaid && s.reason == nil {
		s.prepaid++
		return
	}
	s.budget.open.give(x.price)
}

// Serve runs handle for each exchange the peer begins, with its first frame, in a
// goroutine of its own. A handler that returns without having sent End gives the exchange
// up. Serve reads the session, so that both sides call it, once, and nothing is received
// before; an opener's handle is nil.
//
// It returns [Session.Err] when the session has ended and all handlers have returned.
func (s *Session) Serve(handle func(x *Exchange, first Frame)) error {
	s.mu.Lock()
	s.handle = handle
	s.mu.Unlock()
	s.readOnce()
	<-s.done
	s.workers.Close()
	s.running.Wait()
	return s.Err()
}

// readOnce reads the session until its end, unless another goroutine does.
func (s *Session) readOnce() {
	s.mu.Lock()
	begun := s.reading
	s.reading = true
	s.mu.Unlock()
	if !begun {
		s.readLoop()
		close(s.readOver)
	}
}

// readLoop gives each frame to its exchange until nothing more comes.
func (s *Session) readLoop() {
	ahead := &reader{stream: s.out.stream}
	defer ahead.releaseBuffer()
	r := frameReader{r: ahead, limit: s.maxFrame, pay: s.payInline}
	for {
		f, err := r.readFrame()
		if err == nil {
			err = s.deliver(f)
		}
		s.giveInline()
		if err != nil {
			s.readFailed(err)
			break
		}
		if !s.awaitRoom() {
			break
		}
	}
	s.bodies.readers.Wait()
	s.budget.frames.give(s.mayWait.Load() - freeWaiting)
	s.endExchanges()
}

// payInline pays for a long body that comes with its frame: while it is read, and until it is taken unless the exchange has paid for
// it, it is nobody else's. Those of the control exchange, which cannot come otherwise, find room whatever others hold. The error is
// [ErrOverBudget].
func (s *Session) payInline(f Frame) error {
	size := int64(f.size)
	if f.Exchange == 0 {
		if !s.budget.peer.received.takeFree(size, nil) {
			return errIdentityOver
		}
		s.inlineControl = size
		return nil
	}
	if !s.budget.bodies.tryTake(size) {
		return errIdentityOver
	}
	s.inline = size
	return nil
}

// giveInline gives back what was paid for such a body, unless its frame has it now.
func (s *Session) giveInline() {
	s.budget.peer.received.give(s.inlineControl, nil)
	s.inlineControl = 0
	s.budget.bodies.give(s.takeInline())
}

// takeInline returns what was paid for such a body, which somebody else gives back.
func (s *Session) takeInline() int64 {
	n := s.inline
	s.inline = 0
	return n
}

// errIdentityOver ends a session.
var errIdentityOver = fmt.Errorf("%w: more of its identity has come and was not taken than may", ErrOverBudget)

func (s *Session) readFailed(err error) {
	if errors.Is(err, ErrOverBudget) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrFrameTooLarge) || errors.Is(err, ErrProtocol) {
		s.failSession(err)
		return
	}
	s.endLost(err)
}

// deliver gives a frame to its exchange. The error is [ErrProtocol].
func (s *Session) deliver(f Frame) error {
	switch {
	case f.Exchange != 0 && f.Type == beatType, f.Exchange == 0 && (f.End || f.Type == resetType):
		return fmt.Errorf("%w: frame of type %d in exchange %d", ErrProtocol, f.Type, f.Exchange)
	case f.Type == beatType:
		s.beat.heardBeat()
		return nil
	}
	x, isNew, err := s.findExchange(f)
	if err == errNoRoom { //nolint:errorlint // findExchange returns it bare
		err = s.refuseExchange(f.Exchange) // what else comes of it is ignored
	}
	switch {
	case err != nil:
		return err
	case f.on != 0:
		return s.announce(x, isNew, f)
	case isNew:
		_, err := x.admitLocked(f) // nobody else has it yet
		s.runHandler(x, f)
		return err
	case x == nil:
		return nil // its exchange is over
	case f.Type == resetType:
		x.close(f.resetErr())
		return nil
	}
	return x.deliver(f)
}

// refuseExchange says that there is no room for an exchange. The error is [ErrProtocol]: a peer
// that begins them without end is not waiting for room.
func (s *Session) refuseExchange(number uint32) error {
	if s.refusals == nil {
		s.refusals = newLimiter(float64(s.options.MaxExchanges)*refusalRate, s.options.MaxExchanges*refusalBurst)
	}
	if !s.refusals.allow() {
		return fmt.Errorf("%w: %w", ErrProtocol, ErrTooManyExchanges)
	}
	s.out.sendSignal(newReset(number, overBudget))
	return nil
}

// errNoRoom is that of an exchange for which the budget has no room.
var errNoRoom = errors.New("no room for an exchange")

// findExchange returns the exchange of a frame; nil if that is over. The error is [ErrProtocol],
// or errNoRoom.
func (s *Session) findExchange(f Frame) (x *Exchange, isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x = s.exchanges[f.Exchange]; x != nil {
		return x, false, nil
	}
	switch later := int32(f.Exchange - s.last); {
	case later <= 0 || f.Type == resetType:
		return nil, false, nil
	case s.opener:
		return nil, false, fmt.Errorf("%w: frame of an exchange that was not begun", ErrProtocol)
	case s.count >= 2*s.options.MaxExchanges:
		return nil, false, fmt.Errorf("%w: %w", ErrProtocol, ErrTooManyExchanges)
	}
	s.last = f.Exchange
	if s.reason != nil {
		return nil, false, nil
	}
	price := int64(exchangePrice + max(f.size-exchangeBody, 0))
	if !s.payExchangeLocked(price) {
		return nil, false, errNoRoom
	}
	s.count++
	x = &Exchange{session: s, number: f.Exchange, price: price}
	s.exchanges[x.number] = x
	return x, true, nil
}

// runHandler runs the handler of an exchange, unless the peer has given it up already.
func (s *Session) runHandler(x *Exchange, first Frame) {
	x.hasHandler = true
	if x.isGivenUp() {
		x.Release()
		return
	}
	s.workers.Go(&s.running, func() {
		defer x.Release() // also by runtime.Goexit
		s.handle(x, first)
	})
}

// endExchanges tells every exchange that nothing comes any more, when nothing is read any more. Those of which a handler
// was to have the first body, which has not come, are over with that.
func (s *Session) endExchanges() {
	s.mu.Lock()
	all := make([]*Exchange, 0, len(s.exchanges))
	for _, x := range s.exchanges {
		all = append(all, x)
	}
	after := s.after
	s.mu.Unlock()
	for _, x := range all {
		if x == s.control {
			x.close(after)
			continue
		}
		x.close(fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, after))
		if !s.opener && !x.hasHandler {
			x.Release()
		}
	}
}

// unhandled counts a frame that waits to be taken.
func (s *Session) unhandled(f Frame) { s.waiting.Add(costOf(f)) }

// handled counts it no longer.
func (s *Session) handled(f Frame) {
	if f.late != nil {
		s.bodies.taken(f.late)
		return
	}
	s.budget.bodies.give(f.paid)
	if s.waiting.Add(-costOf(f)) < s.mayWait.Load() && s.full.Load() {
		wake.Signal(s.room)
	}
}

// costOf is what a frame takes of memory, about.
func costOf(f Frame) int64 { return int64(len(f.Body)) + frameCost }

// awaitRoom waits while so much waits to be taken that nothing more is read. It is false
// when the session ends.
func (s *Session) awaitRoom() bool {
	if s.mayReadOn() {
		return true
	}
	window := &s.budget.peer.received // what yamux takes in meanwhile is the identity's
	if !window.takeFree(mainWindow, nil) {
		s.failSession(errIdentityOver)
		return false
	}
	defer window.give(mainWindow, nil)
	s.full.Store(true)
	defer s.full.Store(false)
	for s.waiting.Load() >= s.mayWait.Load() {
		select {
		case <-s.room:
		case <-s.dying:
			return false
		}
	}
	s.noteHeard() // this side did not listen: the peer was not silent
	return true
}

// mayReadOn reports whether more may be read. What waits is paid for in steps, and given back
// when hardly anything waits.
func (s *Session) mayReadOn() bool {
	switch waiting, may := s.waiting.Load(), s.mayWait.Load(); {
	case waiting < may:
		if may > freeWaiting && waiting < freeWaiting/2 {
			s.mayWait.Store(freeWaiting)
			s.budget.frames.give(may - freeWaiting)
		}
		return true
	case may < maxWaiting && s.budget.frames.tryTake(waitingStep):
		s.mayWait.Store(may + waitingStep)
		return s.mayReadOn()
	}
	return false
}

// isDeaf reports whether nothing is read because too much waits to be taken.
func (s *Session) isDeaf() bool { return s.full.Load() }

// Close ends the session for the reason given, which [Session.Err] returns from
// then on; nil means [ErrSessionClosed]. What was sent before is sent, if the peer
// takes it within a second. Close unblocks all that waits and returns when the
// session's goroutines have; handlers run by Serve it does not wait for, so that
// they may call it. Only the first call has a reason.
func (s *Session) Close(reason error) {
	if reason == nil {
		reason = ErrSessionClosed
	}
	s.failSession(reason)
	<-s.done
}

// Done is closed when the session has ended and its goroutines, other than
// handlers, have returned.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session ended, nil while it has not: the reason given to
// Close, [ErrSessionClosed] joined with what became of the connection, or
// [ErrSilent], [ErrMalformed], [ErrFrameTooLarge], [ErrOverBudget] or [ErrProtocol].
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// Heard returns when something was last received or when the session began. What has come of
// a long body counts, be it that its frame has not come yet.
func (s *Session) Heard() time.Time {
	listened := s.born.Add(time.Duration(s.heard.Load()))
	if heard := s.mux.Heard(); heard.After(listened) {
		return heard
	}
	return listened
}

func (s *Session) noteHeard() { s.heard.Store(int64(time.Since(s.born))) }

// maxFrame is how long a body of type t may be.
func (s *Session) maxFrame(t Type) int {
	switch {
	case t == beatType:
		return 0
	case t == resetType:
		return maxReason
	case s.options.MaxFrame == nil:
		return defaultMaxFrame
	}
	return min(s.options.MaxFrame(t), MaxFrame)
}

// startWork runs f in a goroutine that the end of the session waits for. It reports
// whether it did: a session that has ended runs nothing new.
func (s *Session) startWork(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return false
	}
	s.tasks.Go(f)
	return true
}

// failSession ends the session without waiting. The first reason counts.
func (s *Session) failSession(reason error) {
	s.mu.Lock()
	if s.reason != nil {
		s.mu.Unlock()
		return
	}
	s.reason, s.after = reason, reason
	if !errors.Is(reason, ErrSessionClosed) {
		s.after = fmt.Errorf("%w: %w", ErrSessionClosed, reason)
	}
	close(s.dying) // within the lock: who finds a reason finds the session dying
	s.mu.Unlock()
	s.complain(reason)
	s.beat.stopBeating()
	go s.awaitAll()
}

// awaitAll waits for everything that the session has started, then marks it as done.
func (s *Session) awaitAll() {
	s.bodies.stopWaiting()
	s.out.close(closeTimeout)
	s.mux.Close()
	s.tasks.Wait()
	s.readOnce() // what has come of a session that nobody serves
	<-s.readOver
	s.givePrepaid()
	s.bodies.giveKept()
	s.budget.leave()
	close(s.done)
}

// complain logs what the peer did wrong.
func (s *Session) complain(reason error) {
	for _, bad := range []error{ErrMalformed, ErrFrameTooLarge, ErrProtocol, ErrOverBudget, ErrSilent} {
		if errors.Is(reason, bad) {
			by := s.peer.Identity.String()
			s.options.Warn(by, "session closed", "peer", by, "addr", s.peer.Addr, "error", reason.Error())
			return
		}
	}
}

// endLost ends the session because of its connection. err is what was noticed.
func (s *Session) endLost(err error) {
	if cause := s.mux.Cause(); cause != nil {
		err = cause
	}
	switch {
	case errors.Is(err, ErrProtocol):
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w by the peer", ErrSessionClosed)
	default:
		err = fmt.Errorf("%w: %w", ErrSessionClosed, err)
	}
	s.failSession(err)
}

// closedErr is the error of using a session that has ended.
func (s *Session) closedErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after
}

// payExchangeLocked pays for an exchange, if there is room for it.
func (s *Session) payExchangeLocked(price int64) bool {
	switch {
	case price == exchangePrice && s.prepaid > 0:
		s.prepaid--
		return true
	case s.budget.open.tryTake(price):
		return true
	case s.prepaid == 0:
		return false
	}
	s.givePrepaidLocked()
	return s.budget.open.tryTake(price)
}

// givePrepaid gives back what is paid for exchanges that are not there.
func (s *Session) givePrepaid() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givePrepaidLocked()
}

func (s *Session) givePrepaidLocked() {
	s.budget.open.give(exchangePrice * int64(s.prepaid))
	s.prepaid = 0
}

// rest gives back what only a busy session needs.
func (s *Session) rest() {
	s.givePrepaid()
	s.out.rest()
	s.out.stream.Shrink()
	s.bodies.shrink()
	s.workers.ReleaseIdle()
}
