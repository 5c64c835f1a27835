package dispatcher

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// hosts are all hosts that were ever named to this dispatcher.
type hosts struct {
	listing  sync.RWMutex // held while what the registry says of them is replaced
	listings int          // how often that has changed; guarded by listing
	unread   atomic.Bool  // there is a registry that was never read: nobody can say that there is no such host, nor by what labels others are selected

	mu     sync.Mutex
	byName map[string]*host
	names  btree.Set[string]

	connected int       // have a session
	awaited   int       // are about to come back
	until     time.Time // when they no longer are

	catalogues *catalogues
}

func newHosts() *hosts {
	return &hosts{byName: map[string]*host{}, catalogues: newCatalogues()}
}

// get returns a host, made if it is new.
func (hs *hosts) get(name string) *host {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.byName[name]
	if h == nil {
		h = &host{name: name, greeting: make(chan struct{}, 1), catalogues: hs.catalogues, offers: &catalogue{}}
		hs.byName[name] = h
		hs.names.Insert(name)
	}
	return h
}

// findKnown returns a host that is in the registry or has ever connected; nil for any
// other.
func (hs *hosts) findKnown(name string) *host {
	h := hs.find(name)
	if h == nil || !h.known() {
		return nil
	}
	return h
}

// find returns a host of which anything was ever said; nil for any other.
func (hs *hosts) find(name string) *host {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.byName[name]
}

// page returns up to n known hosts by name, from the one after the cursor.
func (hs *hosts) page(cursor string, n int) (page []*host, next string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.names.Ascend(cursor, func(name string) bool {
		h := hs.byName[name]
		switch {
		case name == cursor || !h.known():
			return true
		case len(page) == n:
			next = page[n-1].name
			return false
		}
		page = append(page, h)
		return true
	})
	return page, next
}

// host is one host: what is stored of it, what the registry says of it, and its
// session.
type host struct {
	name       string
	marking    sync.Mutex    // held while a mark is read from the store, so that the latest is the one that is kept
	greeting   chan struct{} // holds a value while an agent is greeted: one at a time
	waiting    atomic.Int64  // agents that wait for their turn to be greeted
	catalogues *catalogues   // of all hosts

	mu         sync.Mutex
	connected  bool                        // has ever been
	row        store.Host                  // if connected
	offers     *catalogue                  // never nil
	attributes inventory.Attributes        // of its labels and facts
	spec       *HostSpec                   // nil: not in the registry
	operator   map[string]string           // labels that operators gave it; replaced whole
	unlabelled bool                        // which these are cannot be read
	session    *session                    // nil: away
	expected   *time.Timer                 // makes its jobs unknown unless it comes back; nil: nothing is expected
	returning  time.Time                   // until then it counts as about to come back
	dialError  string                      // why it could not be dialled, the last time
	problems   []harp.HostProblem          // that its agent told last; replaced whole
	pause      *harp.HostPause             // nil: it is not paused
	pauseTold  bool                        // that it has ended by itself
	holds      *window.Gate                // what windows and its pause keep back; nil: nothing
	drift      map[string]harp.DriftStatus // its marks, by name; replaced whole
	duplicate  duplicate                   // the last other agent of its name that was refused
	forgotten  hourly                      // attempts that the feed names, as its agent is to forget them

	elapsed map[string]elapsed // by job, of attempts that the last session has left
}

func (h *host) known() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connected || h.spec != nil
}

// away reports whether it is neither online nor about to come back.
func (h *host) away() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.awayLocked()
}

func (h *host) awayLocked() bool { return h.session == nil && !time.Now().Before(h.returning) }

// expectReturn counts the host as about to come back until then.
func (hs *hosts) expectReturn(h *host, until time.Time) {
	h.mu.Lock()
	h.returning = until
	h.mu.Unlock()
	hs.mu.Lock()
	hs.awaited++
	hs.until = until
	hs.mu.Unlock()
}

// lockGreeting waits until nobody else decides about the host's session: of two agents
// that come at the same time the second must find the first. unlock lets the next
// one in; it may be called again.
func (h *host) lockGreeting(ctx context.Context) (unlock func(), err error) {
	select {
	case h.greeting <- struct{}{}:
		return sync.OnceFunc(func() { <-h.greeting }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// settled is the host's session when none is about to begin, nil if there is none or ctx ends
// before.
func (h *host) settled(ctx context.Context) *session {
	unlock, err := h.lockGreeting(ctx)
	if err != nil {
		return nil
	}
	defer unlock()
	return h.currentSession()
}

// setExpectation replaces what makes the host's jobs unknown; nil: nothing does.
func (h *host) setExpectation(t *time.Timer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.expected != nil {
		h.expected.Stop()
	}
	h.expected = t
}

// expectNone expects nothing of any host any more.
func (hs *hosts) expectNone() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.byName {
		h.setExpectation(nil)
	}
}

// expected is how many hosts have a session, or had one when the dispatcher stopped
// and are about to come back.
func (hs *hosts) expected() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if time.Now().Before(hs.until) {
		return max(hs.connected, hs.awaited)
	}
	return hs.connected
}

// currentSession returns the open session, nil if there is none.
func (h *host) currentSession() *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session
}

// setRow takes over what is stored or was said of the host. Nobody may change the
// row's procedures from now on.
func (h *host) setRow(row store.Host) {
	offers := h.catalogues.catalogueOf(row.Procedures)
	row.Procedures = offers.docs
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected, h.row, h.offers = true, row, offers
	h.setAttributes()
}

// setAttributes takes labels and facts apart, which have changed. The caller holds mu.
func (h *host) setAttributes() { h.attributes = inventory.NewAttributes(h.labels(), h.row.Facts) }

// labels are those of its agent, of the registry and of operators; the later count more. The
// caller holds mu.
func (h *host) labels() map[string]string {
	all := map[string]string{}
	maps.Copy(all, h.row.Labels)
	if h.spec != nil {
		maps.Copy(all, h.spec.Labels)
	}
	maps.Copy(all, h.operator)
	return all
}

// checkRequest looks whether the host offers the procedure and the arguments fit. A host
// that has not said what it offers is not judged; its agent will. Errors:
// harp.ErrNotFound, *harp.FieldError.
func (h *host) checkRequest(ctx context.Context, req harp.Request) (harp.ProcedureDoc, error) {
	h.mu.Lock()
	offers := h.offers
	h.mu.Unlock()
	doc, err := h.catalogues.checkCall(ctx, offers, req.Procedure, req.Args)
	if errors.Is(err, harp.ErrNotFound) {
		err = failures.NotFound("procedure", req.Procedure+" on "+h.name)
	}
	return doc, err
}

// offered returns what the host offers, and whether it is neither online nor about to come
// back.
func (h *host) offered() (offers *catalogue, away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.offers, h.awayLocked()
}

// secretArgs returns which of the arguments are not to be shown, by what the host offers now.
func (h *host) secretArgs(procedure string, args harp.Value) []string {
	h.mu.Lock()
	offers := h.offers
	h.mu.Unlock()
	if at, found := offers.findProcedure(procedure); found {
		return h.catalogues.secretArgs(offers, at, args)
	}
	return nil
}

// findProcedure returns a procedure that the host offers.
func (h *host) findProcedure(name string) (doc harp.ProcedureDoc, found bool) {
	h.mu.Lock()
	offers := h.offers
	h.mu.Unlock()
	at, found := offers.findProcedure(name)
	if found {
		doc = offers.docs[at]
	}
	return doc, found
}

// procedures returns a page of what the host offers.
func (h *host) procedures(cursor string, n int) (page []harp.ProcedureDoc, next string) {
	h.mu.Lock()
	offers := h.offers
	h.mu.Unlock()
	at, found := offers.findProcedure(cursor)
	if found {
		at++
	}
	for _, doc := range offers.docs[at:] {
		if len(page) == n {
			return page, page[n-1].Name
		}
		page = append(page, doc)
	}
	return page, ""
}

// status is the host as callers see it.
func (h *host) status() harp.HostStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := harp.HostStatus{
		Name: h.name, Online: h.session != nil, Labels: h.labels(), LabelSources: h.labelSources(), Procedures: slices.Clone(h.offers.names),
		Facts: slices.Clone(h.row.Facts), LastHeard: h.row.LastHeard, Software: h.row.Software, Error: h.dialError,
		Problems: h.problemsLocked(), Pause: h.shownPauseLocked(), Drift: marksOf(h.drift, ""),
	}
	if h.session != nil {
		s.LastHeard, s.Error = h.session.lastHeard().UTC(), ""
	}
	if h.spec != nil {
		s.Address = h.spec.Address
	}
	return s
}

// lookAt is the host as targets see it.
func (h *host) lookAt(now time.Time) inventory.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := inventory.Host{
		Name: h.name, Attributes: h.attributes, Addresses: h.attributes.Addresses(),
		Procedures: h.offers.names, Online: h.session != nil, Software: h.row.Software, Paused: isPaused(h.shownPauseLocked(), now), Drift: h.drift,
	}
	heard := h.row.LastHeard
	switch {
	case h.session != nil:
		heard = h.session.lastHeard()
		seen.Addresses = withAddress(seen.Addresses, h.session.tr.Peer().Addr)
	case h.spec != nil:
		seen.Addresses = withAddress(seen.Addresses, h.spec.Address)
	}
	if !heard.IsZero() {
		seen.Ever, seen.Heard = true, max(now.Sub(heard), 0)
	}
	return seen
}

// withAddress adds the address that stands before a port; a name is none. The slice it was
// given stays as it is.
func withAddress(addresses []netip.Addr, hostPort string) []netip.Addr {
	addr, err := netip.ParseAddrPort(hostPort)
	if err != nil || slices.Contains(addresses, addr.Addr()) {
		return addresses
	}
	return append(slices.Clip(addresses), addr.Addr().Unmap().WithZone(""))
}

// storedRow returns what is stored of the host.
func (h *host) storedRow() store.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.row
}

// updateRow changes the stored row of the host and returns it.
func (h *host) updateRow(change func(*store.Host)) store.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.row)
	return h.row
}

// admitForgotten counts an attempt that the feed is to name, unless there are too many.
func (h *host) admitForgotten() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.forgotten.admit(time.Now(), 1, maxForgotten) == 0
}

// attach makes s the host's session.
func (hs *hosts) attach(h *host, s *session) {
	h.setExpectation(nil)
	h.mu.Lock()
	h.session, h.returning = s, time.Time{}
	h.mu.Unlock()
	hs.mu.Lock()
	hs.connected++
	hs.mu.Unlock()
}

// detach takes the host's session away.
func (hs *hosts) detach(h *host) {
	h.mu.Lock()
	h.row.LastHeard = h.session.lastHeard().UTC().Truncate(time.Microsecond)
	h.session = nil
	h.mu.Unlock()
	hs.mu.Lock()
	hs.connected--
	hs.mu.Unlock()
}

// keepElapsed keeps what a session leaves of an attempt to the next one.
func (h *host) keepElapsed(job string, e elapsed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.elapsed == nil {
		h.elapsed = map[string]elapsed{}
	}
	h.elapsed[job] = e
}

// noteBegun notes a sign that an attempt has started, for the next sessions if it cannot be stored in this one.
func (h *host) noteBegun(j *store.Job) {
	h.mu.Lock()
	left := h.elapsed[j.ID]
	h.mu.Unlock()
	if left.number != j.Attempt {
		left = elapsed{number: j.Attempt}
	}
	left.begun = true
	h.keepElapsed(j.ID, left)
}

// hasBegun reports whether the agent has given a sign since its last session began that the job's last attempt
// started, which may not be stored.
func (h *host) hasBegun(j *store.Job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.elapsed[j.ID]
	return left.begun && left.number == j.Attempt
}

// takeElapsed returns what the last session has left. What the next one does not take up is over.
func (h *host) takeElapsed() map[string]elapsed {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.elapsed
	h.elapsed = nil
	return left
}

// sessions are those that are open.
func (hs *hosts) sessions() (open []*session) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.byName {
		if s := h.currentSession(); s != nil {
			open = append(open, s)
		}
	}
	return open
}

// setSpec says what the registry says of the host, nil: nothing, and returns whether that is something else than before.
func (h *host) setSpec(spec *HostSpec) (isOther bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	had := h.spec
	h.spec = spec
	if had == nil || spec == nil {
		h.setAttributes()
		return had != spec
	}
	if maps.Equal(had.Labels, spec.Labels) {
		return had.Address != spec.Address
	}
	h.setAttributes()
	return true
}

// setDialError notes why the host could not be dialled; "": it could.
func (h *host) setDialError(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialError = text
}

// list makes specs what the registry says of the hosts.
func (hs *hosts) list(specs []HostSpec) {
	hs.listing.Lock()
	defer hs.listing.Unlock()
	defer hs.unread.Store(false) // all are as the registry has them
	isOther, listed := false, map[string]bool{}
	for i := range specs {
		spec := specs[i]
		listed[spec.Name] = true
		isOther = hs.get(spec.Name).setSpec(&spec) || isOther
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for name, h := range hs.byName {
		if !listed[name] {
			isOther = h.setSpec(nil) || isOther
		}
	}
	if isOther {
		hs.listings++
	}
}

// listedAnew is how often what the registry says of the hosts has changed.
func (hs *hosts) listedAnew() int {
	hs.listing.RLock()
	defer hs.listing.RUnlock()
	return hs.listings
}

// unknownError is the error of hosts, named in a text, that are not known.
func (hs *hosts) unknownError(names string) error {
	if hs.unread.Load() {
		return failures.New("unavailable", "host "+names+" is unknown, and the hosts registry has not been read yet").Err()
	}
	return failures.NotFound("host", names)
}

// findInOneRegistry has find look at hosts as one reading of the registry has them: it looks again if that has
// changed meanwhile, and then nothing changes it.
func (hs *hosts) findInOneRegistry(find func() error) error {
	before := hs.listedAnew()
	if err := find(); hs.listedAnew() == before {
		return err
	}
	hs.listing.RLock()
	defer hs.listing.RUnlock()
	return find()
}
