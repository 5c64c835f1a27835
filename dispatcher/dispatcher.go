// Package dispatcher is harp's engine: it accepts calls, queues them, sends them
// to agents and stores what comes back.
//
// A [Dispatcher] lives inside any Go program and works on a store given to it:
//
//	st, err := badger.Open("harp-data", nil)
//	d, err := dispatcher.Open(ctx, st, dispatcher.Config{})
//	caller := d.Caller()
//
// [Dispatcher.Serve] lets agents and callers connect to it; it may also dial the
// agents that its hosts registry lists.
//
// A program that runs many jobs a second does well to begin with
//
//	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
//
// as the store waits for its disk most of the time, and Go counts that as running.
//
// The files follow a call: service.go takes it from a Caller (callers.go, if that is elsewhere),
// admission.go decides whether it is good and stores it, attempt.go runs it on an exchange of the host's
// session (session.go), frames.go handles what comes of it, watcher.go wakes the requests that wait for its records and its end,
// feed.go those that wait for events, transitions.go moves jobs through their lives, clock.go does what only time makes due,
// scheduleloop.go fires schedules at their times. When a host returns, reconcile.go finds
// out what became of what it had; silence.go says that nobody knows when it does
// not; overdue.go does not wait for ever for one that is there. upkeep.go deletes what is old.
package dispatcher

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/calendar"
	"github.com/harpcaller/harp/internal/logcount"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/internal/workers"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/schedule"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/transport"
)

// Config is how a Dispatcher behaves. Its zero value works; a zero field means its
// default.
type Config struct {
	// Logger gets what operators want to know. Default: slog.Default().
	Logger *slog.Logger

	// Hosts is the hosts registry: which hosts there are beside those that dial
	// in, and where to dial them. nil: none.
	Hosts HostSource

	// RefreshHosts is how often the registry is read. Default 15 minutes.
	RefreshHosts time.Duration

	// TLS is the certificate with which the dispatcher dials the registry's
	// hosts, and the CA it trusts. Needed if a host has an address.
	TLS *tls.Config

	// Dial opens connections to the registry's hosts. Default: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Heartbeat is the interval told to agents and callers. Default 10 s. Agents are told
	// a longer one where there are so many that theirs were more than 200 a second.
	Heartbeat time.Duration

	// OfflineWait is how long the absence of its host alone may hold a call that
	// does not say so itself. Default 30 s.
	OfflineWait time.Duration

	// LostAfter is how long a host may be silent before its jobs, unknown
	// meanwhile, end as lost, and how long, 5 minutes at least, an agent that is
	// connected may owe the end of one. Default 24 hours, at most 6 days: an agent
	// remembers for 7.
	LostAfter time.Duration

	// Retain is how long a job is kept after its end, and events. Default 30
	// days; harp.NoLimit: for ever.
	Retain time.Duration

	// RetainBytes is how many bytes jobs may store: their requests, records and results
	// and what is known of them. Beyond it those that ended first are deleted, and the
	// events of their time. Default no limit.
	RetainBytes int64

	// Now is the wall clock. Default time.Now. For tests of clocks that are set:
	// what has to last a time is measured on the monotonic clock.
	Now func() time.Time

	// TimeZone is the zone, by its name in the IANA database, of schedules and maintenance windows that are put without one.
	// They keep it. Default UTC.
	TimeZone string

	// Limits bound what callers may ask for.
	Limits Limits

	// Senders deliver the messages of notifications; the first is asked that accepts a receiver. Default none: no
	// notification can be put. Package notify has one for webhooks, notify/mail one for mail.
	Senders []notify.Sender

	// Calendars fetches the calendars of maintenance windows that have a URL. Default none: no such window can be put. Package
	// calendar has one.
	Calendars calendar.Source

	// Use are interceptors of all that callers ask, in this process and over the network; the
	// first is asked first. [PrincipalFrom] tells them who asks.
	Use []harp.Interceptor
}

// Limits bound what callers may ask for; a zero field means its default.
type Limits struct {
	SilenceTimeout    time.Duration // longest silence of calls that name none, of procedures that yield records. Default 10 min
	MaxExecTime       time.Duration // of calls that name none. Default 24 h
	MaxSilenceTimeout time.Duration // cap of what calls may name. Default none
	MaxMaxExecTime    time.Duration // cap of what calls may name. Default none
	Attempts          int           // sent and not ended, a host. Default 1,024
	Handshakes        int           // a second. Default 1,000
	BatchHosts        int           // that the target of a batch may select. Default 10,000, at most 100,000
	BatchParallel     int           // members of a batch that are under way at a time, and default of those that name no number. Default 1,000
	BatchPause        time.Duration // how long a batch may be paused before it is cancelled. Default 24 h
	CallerSessions    int           // of all callers at a time. Above half of them one caller has at most a 16th. Default 8,192
	AgentSessions     int           // of all agents at a time. Default 20,000
	PerPrincipal      PrincipalLimits
}

const (
	maxLostAfter = 6 * 24 * time.Hour
	maxAttempts  = 4096 // sent and not ended, a host: what one commit can move
)

// withDefaults fills in what is zero. Errors: *harp.FieldError.
func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		name  string
		field *time.Duration
		value time.Duration
	}{
		{"refresh_hosts", &c.RefreshHosts, 15 * time.Minute},
		{"heartbeat", &c.Heartbeat, 10 * time.Second},
		{"offline_wait", &c.OfflineWait, 30 * time.Second},
		{"lost_after", &c.LostAfter, 24 * time.Hour},
		{"retain", &c.Retain, 30 * 24 * time.Hour},
		{"limits.silence_timeout", &c.Limits.SilenceTimeout, 10 * time.Minute},
		{"limits.max_exec_time", &c.Limits.MaxExecTime, 24 * time.Hour},
		{"limits.max_silence_timeout", &c.Limits.MaxSilenceTimeout, harp.NoLimit},
		{"limits.max_max_exec_time", &c.Limits.MaxMaxExecTime, harp.NoLimit},
		{"limits.batch_pause", &c.Limits.BatchPause, 24 * time.Hour},
	} {
		if *d.field < 0 {
			return c, &harp.FieldError{Field: d.name, Message: "must not be negative"}
		}
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.LostAfter > maxLostAfter {
		return c, &harp.FieldError{Field: "lost_after", Message: "must be at most 6 days"}
	}
	if c.RetainBytes < 0 {
		return c, &harp.FieldError{Field: "retain_bytes", Message: "must not be negative"}
	}
	for _, d := range []struct {
		name  string
		field *int
		value int
	}{
		{"limits.attempts", &c.Limits.Attempts, 1024},
		{"limits.handshakes", &c.Limits.Handshakes, 1000},
		{"limits.batch_hosts", &c.Limits.BatchHosts, 10_000},
		{"limits.batch_parallel", &c.Limits.BatchParallel, 1000},
		{"limits.caller_sessions", &c.Limits.CallerSessions, 8192},
		{"limits.agent_sessions", &c.Limits.AgentSessions, 20_000},
	} {
		if *d.field < 0 {
			return c, &harp.FieldError{Field: d.name, Message: "must not be negative"}
		}
		*d.field = cmp.Or(*d.field, d.value)
	}
	if c.Limits.Attempts > maxAttempts {
		return c, &harp.FieldError{Field: "limits.attempts", Message: fmt.Sprintf("must be at most %d", maxAttempts)}
	}
	if c.Limits.BatchHosts > store.MaxBatchHosts {
		return c, &harp.FieldError{Field: "limits.batch_hosts", Message: fmt.Sprintf("must be at most %d", store.MaxBatchHosts)}
	}
	c.TimeZone = cmp.Or(c.TimeZone, "UTC")
	if _, err := schedule.LoadZone(c.TimeZone); err != nil {
		return c, &harp.FieldError{Field: "time_zone", Message: fmt.Sprintf("%q is no time zone that is known here", c.TimeZone)}
	}
	var err error
	if c.Limits.PerPrincipal, err = c.Limits.PerPrincipal.withDefaults(); err != nil {
		return c, err
	}
	c.Limits.SilenceTimeout = min(c.Limits.SilenceTimeout, c.Limits.MaxSilenceTimeout)
	c.Limits.MaxExecTime = min(c.Limits.MaxExecTime, c.Limits.MaxMaxExecTime)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Dial == nil {
		var dialer net.Dialer
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	}
	return c, nil
}

// Dispatcher queues calls, sends them to agents and keeps what they return. Open starts one, Caller makes
// calls of it in this process, Serve serves others, and Shutdown stops it and closes its store. It is safe
// for concurrent use.
type Dispatcher struct {
	store     store.Store
	cfg       Config
	log       *slog.Logger
	repeated  *logcount.Logger // for what others can do again and again
	hostLines *logcount.Logger // for what all hosts do at times, beside which the others are counted apart
	clock     *wallClock
	name      string // owner of the sessions, in host rows
	hosts     *hosts
	fleet     *fleet
	groups    *groups

	schedules     *schedules
	windows       *windows
	calendars     *calendarSlots
	marking       sync.RWMutex // held for reading while a commit may end checks, until the marks of their hosts are in memory
	notifications *notifications

	changingRules sync.Mutex // one change of retention rules at a time

	applying  chan struct{} // 1 slot: one set of documents at a time
	documents ownDocuments
	labelling sync.Mutex // one change of labels at a time

	registry registry
	watchers watchers
	feed     feed
	workers  workers.Pool  // what attempts run in
	kick     chan struct{} // wakes the clock
	toldTime bool          // the store was told what time it is; belongs to clockLoop

	ofCallers, ofAgents *transport.Budget // what they can make it hold
	streams             atomic.Int64      // attempts that send records
	asking              atomic.Int64      // questions for records that are being answered

	principals *principals
	requests   requests
	greetings  *greetings
	turns      *turns // of calls
	changes    *turns // of documents and hosts

	ctx   context.Context // ends when Shutdown begins, harp.ErrClosed, or when the store has failed
	stop  context.CancelCauseFunc
	loops sync.WaitGroup

	mu      sync.Mutex // guards closing: no work is added to calls after it is set
	closing bool
	work    sync.WaitGroup // requests, sessions and listeners under way

	shutdown sync.Once
	closed   chan struct{}
	closeErr error
}

// Open recovers the state of st and starts the dispatcher's loops. The dispatcher
// owns st from now on, also when Open fails, and closes it in Shutdown. ctx bounds
// opening only. Jobs that were on their way or running when the store was last
// closed go on at their agents, which tell of them when they connect. Errors:
// *harp.FieldError for a configuration that cannot be, for no store, and for one that is
// another dispatcher's, who keeps it; the store's.
func Open(ctx context.Context, st store.Store, cfg Config) (*Dispatcher, error) {
	if err := takeStore(st); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, errors.Join(err, closeStore(st))
	}
	d := &Dispatcher{
		store: st, cfg: cfg, log: cfg.Logger, repeated: logcount.New(cfg.Logger), hostLines: logcount.New(cfg.Logger), name: harp.NewID(),
		kick: make(chan struct{}, 1), closed: make(chan struct{}),
		ofCallers: transport.NewBudget(), ofAgents: transport.NewBudget(),
	}
	d.ctx, d.stop = context.WithCancelCause(context.Background())
	d.clock = newWallClock(cfg.Now, d.clockSet)
	d.hosts, d.principals = newHosts(), newPrincipals(cfg.Limits)
	d.greetings = newGreetings()
	d.groups = &groups{byName: map[string]group{}}
	d.fleet = &fleet{hosts: d.hosts, groups: d.groups, now: d.now}
	d.schedules, d.windows, d.notifications, d.applying = newSchedules(), newWindows(), newNotifications(), make(chan struct{}, 1)
	d.calendars, d.documents = newCalendarSlots(), newOwnDocuments()
	d.watchers.batchChanged = d.schedules.noteBatch
	d.turns, d.changes = newTurns(aloneWeight, sharedWeight), newTurns(aloneChanges, sharedChanges)
	d.feed.changed = make(chan struct{})
	d.registry.asked = make(chan struct{}, 1)
	if err := d.recover(ctx); err != nil {
		d.stop(harp.ErrClosed)
		return nil, errors.Join(fmt.Errorf("open dispatcher: %w", err), closeStore(st))
	}
	d.loops.Go(d.clockLoop)
	d.loops.Go(d.registryLoop)
	d.loops.Go(d.upkeepLoop)
	d.loops.Go(d.overdueLoop)
	d.loops.Go(d.failureLoop)
	d.loops.Go(d.feedLoop)
	d.loops.Go(d.scheduleLoop)
	d.loops.Go(d.windowLoop)
	d.loops.Go(d.calendarLoop)
	d.loops.Go(d.documentsLoop)
	d.startNotifications()
	return d, nil
}

// stores are those that dispatchers of this process have: two on one store would start jobs
// twice.
var stores sync.Map

// takeStore makes a store a dispatcher's. Errors: *harp.FieldError.
func takeStore(st store.Store) error {
	if st == nil {
		return &harp.FieldError{Field: "store", Message: "must be set"}
	}
	if !reflect.TypeOf(st).Comparable() {
		return nil // a value that decorates a store: whose it is cannot be told
	}
	if _, taken := stores.LoadOrStore(st, nil); taken {
		return &harp.FieldError{Field: "store", Message: "belongs to another dispatcher"}
	}
	return nil
}

// closeStore closes a store, which is nobody's then.
func closeStore(st store.Store) error {
	err := st.Close()
	if reflect.TypeOf(st).Comparable() {
		stores.Delete(st)
	}
	return err
}

// recover reads the hosts that are known. Those that were connected when the store
// was last closed count as heard now, and are given time to return.
func (d *Dispatcher) recover(ctx context.Context) error {
	var returning []*host
	for cursor := ""; ; {
		page, next, err := d.store.ListHosts(ctx, cursor, 500)
		if err != nil {
			return err
		}
		for _, row := range page {
			h := d.hosts.get(row.Name)
			h.setRow(row)
			d.awaits(row)
			if row.Connected {
				returning = append(returning, h)
			}
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	if len(returning) > 0 {
		d.noteAwayLater(returningTime, returning...)
	}
	if err := errors.Join(d.loadClock(ctx), d.loadGroups(ctx), d.loadLabels(ctx), d.loadSchedules(ctx), d.loadWindows(ctx), d.loadPauses(ctx), d.loadDrift(ctx), d.loadNotifications(ctx)); err != nil {
		return err
	}
	d.reviewAllHolds()
	if err := d.expectActive(ctx); err != nil {
		return err
	}
	return d.loadRegistry(ctx) // last: its hosts are dialled at once
}

// Caller returns a Caller inside this process. Closing it does not touch the
// dispatcher.
func (d *Dispatcher) Caller() *harp.Caller {
	return harp.NewCaller(d.intercepted(d.service(harp.Principal{Kind: processKind, Auth: "process"})))
}

// CallerAs returns a Caller inside this process that acts for somebody whom the process has
// authenticated, such as Principal{Kind: "user", Name: "ana"}: jobs, cancels and events name
// them, idempotency keys are theirs alone, and the limits of a principal hold for them. What a
// Caller without a kind or a name asks is answered by a *harp.FieldError.
func (d *Dispatcher) CallerAs(who harp.Principal) *harp.Caller {
	if who.Auth == "" {
		who.Auth = "process"
	}
	s := d.service(who)
	switch {
	case who.Kind == "":
		s.refused = &harp.FieldError{Field: "principal.kind", Message: "must not be empty"}
	case who.Name == "":
		s.refused = &harp.FieldError{Field: "principal.name", Message: "must not be empty"}
	}
	return harp.NewCaller(d.intercepted(s))
}

// intercepted is a service behind what the configuration puts before each.
func (d *Dispatcher) intercepted(s *service) harp.Service {
	if len(d.cfg.Use) == 0 {
		return s
	}
	return harp.Intercept(s, append([]harp.Interceptor{namePrincipal(s.who)}, d.cfg.Use...)...)
}

type principalKey struct{}

// PrincipalFrom returns who asks, of the ctx that an interceptor of Config.Use gets; false for
// any other.
func PrincipalFrom(ctx context.Context) (harp.Principal, bool) {
	who, ok := ctx.Value(principalKey{}).(harp.Principal)
	return who, ok
}

// namePrincipal makes the ctx of the interceptors behind it one of PrincipalFrom.
func namePrincipal(who harp.Principal) harp.Interceptor {
	with := func(ctx context.Context) context.Context { return context.WithValue(ctx, principalKey{}, who) }
	return harp.Interceptor{
		Submit: func(next harp.SubmitFunc) harp.SubmitFunc {
			return func(ctx context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
				return next(with(ctx), calls)
			}
		},
		Results: func(next harp.ResultFunc) harp.ResultFunc {
			return func(ctx context.Context, ids []string, wait bool) ([]harp.JobResult, error) {
				return next(with(ctx), ids, wait)
			}
		},
		Records: func(next harp.RecordsFunc) harp.RecordsFunc {
			return func(ctx context.Context, id string, q harp.RecordQuery) (harp.RecordPage, error) {
				return next(with(ctx), id, q)
			}
		},
		BatchLog: func(next harp.BatchLogFunc) harp.BatchLogFunc {
			return func(ctx context.Context, id string, q harp.BatchQuery) (harp.BatchPage, error) {
				return next(with(ctx), id, q)
			}
		},
	}
}

// Serve lets agents and callers connect through l, with TLS 1.3 and certificates on
// both sides, until ctx ends or the dispatcher is shut down (nil), or l fails, or the
// dispatcher's store does (store.ErrPoisoned): then the dispatcher can do nothing any more
// and is to be shut down, and its store opened anew, best in a new process. It may be
// called for several listeners. A *harp.FieldError says that there is no listener, or no
// TLS for one that needs it.
func (d *Dispatcher) Serve(ctx context.Context, l net.Listener, tc *tls.Config) error {
	if err := checkListener(l, tc); err != nil {
		return err
	}
	if !d.beginWork() {
		return errors.Join(harp.ErrClosed, l.Close())
	}
	defer d.work.Done()
	ctx, cancel := d.until(ctx)
	defer cancel()
	err := transport.Serve(ctx, l, transport.ServeConfig{
		TLS: tc, Logger: d.log,
		HandshakeRate: float64(d.cfg.Limits.Handshakes),
		Protocols: map[string]transport.Role{
			transport.ProtocolAgent: transport.RoleAgent,
			transport.ProtocolCall:  transport.RoleCaller,
		},
	}, d.serveConn)
	return cmp.Or(d.failure(), err)
}

// checkListener refuses a listener that cannot be served. Errors: *harp.FieldError.
func checkListener(l net.Listener, tc *tls.Config) error {
	if l == nil {
		return &harp.FieldError{Field: "listener", Message: "must be set"}
	}
	if _, tcp := l.Addr().(*net.TCPAddr); tcp && tc == nil {
		return errors.Join(&harp.FieldError{Field: "tls", Message: "must be set"}, l.Close())
	}
	return nil
}

// failureLoop ends all that the dispatcher does when its store has failed: nothing can be
// accepted any more, and none of the agents' words kept.
func (d *Dispatcher) failureLoop() {
	if err := d.store.AwaitFailure(d.ctx); errors.Is(err, store.ErrPoisoned) {
		d.log.Error("the store has failed: the dispatcher ends", "err", err)
		d.stop(err)
	}
}

// failure is why the store has failed; nil if it has not.
func (d *Dispatcher) failure() error {
	if err := context.Cause(d.ctx); errors.Is(err, store.ErrPoisoned) {
		return err
	}
	return nil
}

func (d *Dispatcher) serveConn(ctx context.Context, conn *transport.Conn) {
	peer := conn.Peer()
	who := harp.Principal{Kind: string(peer.Identity.Role), Name: peer.Identity.Name, Auth: "certificate"}
	counted, err := d.principals.beginSession(who)
	if counted {
		defer d.principals.endSession(who, err)
	}
	if err != nil {
		d.repeated.Warn(who.Kind+" "+who.Name, "session refused", "peer", peer.Identity.String(), "addr", peer.Addr, "err", err)
	}
	switch {
	case !counted, err != nil && peer.Protocol == transport.ProtocolAgent:
		_ = conn.Close() // it is refused in any case
	case peer.Protocol == transport.ProtocolAgent:
		err = d.serveAgent(ctx, conn)
	case peer.Protocol == transport.ProtocolCall:
		s := d.service(who)
		s.far, s.refused = true, err
		err = ServeCaller(ctx, conn, d.intercepted(s), CallerConfig{Heartbeat: d.cfg.Heartbeat, Logger: d.log, Warn: d.repeated.Warn, Budget: d.ofCallers})
	}
	if err != nil && ctx.Err() == nil {
		d.log.Debug("session ended", "peer", peer.Identity.String(), "addr", peer.Addr, "protocol", peer.Protocol, "err", err)
	}
}

// sessionOptions are those of sessions with agents.
func (d *Dispatcher) sessionOptions() transport.Options {
	return transport.Options{Logger: d.log, MaxFrame: wire.MaxBody, Warn: d.repeated.Warn, Budget: d.ofAgents}
}

// beginWork notes that work is under way; false once the dispatcher is closing.
func (d *Dispatcher) beginWork() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closing {
		d.work.Add(1)
	}
	return !d.closing
}

// spawn runs f as work that Shutdown waits for; false once the dispatcher is closing.
func (d *Dispatcher) spawn(f func()) bool {
	if !d.beginWork() {
		return false
	}
	defer d.work.Done()
	d.workers.Go(&d.work, f)
	return true
}

// until returns a ctx that ends with ctx or when the dispatcher shuts down.
func (d *Dispatcher) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(d.ctx, func() { cancel(context.Cause(d.ctx)) })
	return ctx, func() { release(); cancel(nil) }
}

// Shutdown stops: it accepts no more calls and starts no more jobs, closes the
// sessions and then the store. It waits for all of that as long as ctx allows and
// returns ctx's error if it had to give up waiting. It is idempotent.
func (d *Dispatcher) Shutdown(ctx context.Context) error {
	d.shutdown.Do(func() {
		d.mu.Lock()
		d.closing = true
		d.mu.Unlock()
		d.stop(harp.ErrClosed)
		d.hosts.expectNone()
		go func() {
			d.loops.Wait()
			d.workers.Close()
			d.work.Wait()
			d.repeated.Close()
			d.hostLines.Close()
			d.closeErr = closeStore(d.store)
			close(d.closed)
		}()
	})
	select {
	case <-d.closed:
		return d.closeErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
