package dispatcher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/window"
)

// matchedAtOnce is how many hosts a target is matched with before others have a turn.
const matchedAtOnce = 500

// fleet finds the hosts that targets select. Regular expressions in a target can take
// milliseconds a host, so that only one is matched at a time.
type fleet struct {
	hosts  *hosts
	groups *groups
	now    func() time.Time
	turn   sync.Mutex
}

// compileTarget reads a target and the groups it uses. Errors: harp.ErrInvalid (target).
func (f *fleet) compileTarget(text string) (*target.Matcher, error) {
	return compileTarget(text, target.NewGroups(f.groups.texts()))
}

// compileTarget reads a target and those of groups it uses. Errors: harp.ErrInvalid (target).
func compileTarget(text string, groups *target.Groups) (*target.Matcher, error) {
	e, err := target.Parse(text)
	if err != nil {
		return nil, targetError(err)
	}
	m, err := e.Compile(groups)
	if err != nil {
		return nil, targetError(err)
	}
	return m, nil
}

// selectPage returns up to n hosts that a target selects, by name, from the one after the
// cursor. Errors: harp.ErrInvalid (target), harp.ErrNotFound, context.Cause.
func (f *fleet) selectPage(ctx context.Context, text, cursor string, n int) (page []*host, next string, err error) {
	m, err := f.compileTarget(text)
	if err != nil {
		return nil, "", err
	}
	err = f.hosts.findInOneRegistry(func() error {
		page, next, err = f.matchPage(ctx, m, cursor, n)
		return err
	})
	if err == nil && len(page) == 0 && cursor == "" {
		err = noHostError(text)
	}
	return page, next, err
}

// matchPage is selectPage for a target that was read.
func (f *fleet) matchPage(ctx context.Context, m *target.Matcher, cursor string, n int) (page []*host, next string, err error) {
	names, only := m.Names()
	if cursor == "" {
		if _, err := f.findNames(names); err != nil {
			return nil, "", err
		}
	}
	if only {
		page, next = f.namedPage(names, cursor, n)
		return page, next, nil
	}
	if f.hosts.unread.Load() {
		return nil, "", registryUnreadError()
	}
	for from := cursor; ; {
		chunk, more := f.hosts.page(from, matchedAtOnce)
		selected, err := f.selectAmong(ctx, m, chunk)
		if err != nil {
			return nil, "", err
		}
		for _, h := range selected {
			if len(page) == n {
				return page, page[n-1].name, nil
			}
			page = append(page, h)
		}
		if from = more; from == "" {
			return page, "", nil
		}
	}
}

// findNames returns the hosts of some names. Errors: harp.ErrNotFound, which names those that are
// not known.
func (f *fleet) findNames(names []string) (hosts []*host, err error) {
	const most = 5
	var unknown []string
	for _, name := range names {
		if h := f.hosts.findKnown(name); h != nil {
			hosts = append(hosts, h)
		} else {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return hosts, nil
	}
	listed := strings.Join(unknown[:min(len(unknown), most)], ", ")
	if n := len(unknown) - most; n > 0 {
		listed += fmt.Sprintf(" and %d more", n)
	}
	return nil, f.hosts.unknownError(listed)
}

// namedPage returns up to n of the hosts of these names, which are sorted, from the one
// after the cursor.
func (f *fleet) namedPage(names []string, cursor string, n int) (page []*host, next string) {
	from, found := slices.BinarySearch(names, cursor)
	if found {
		from++
	}
	for _, name := range names[from:] {
		if len(page) == n {
			return page, page[n-1].name
		}
		if h := f.hosts.findKnown(name); h != nil {
			page = append(page, h)
		}
	}
	return page, ""
}

// registryUnreadError is the error of a target that may select hosts, or leave some out, by what the registry says of them, before that was read for the
// first time.
func registryUnreadError() error {
	return failures.New("unavailable", "the target cannot be used before the hosts registry was read").Err()
}

func noHostError(text string) error {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	failure := failures.New("not_found", "no hosts match "+text)
	failure.Type = "target"
	return failure.Err()
}

// selectAmong returns those of some hosts that a target selects, when it has its turn.
func (f *fleet) selectAmong(ctx context.Context, m *target.Matcher, hosts []*host) (selected []*host, err error) {
	err = f.look(ctx, hosts, func(t *inventory.Table) {
		for _, i := range m.Select(t) {
			selected = append(selected, hosts[i])
		}
	})
	return selected, err
}

// look lets use look at some hosts, one use at a time. Errors: context.Cause.
func (f *fleet) look(ctx context.Context, hosts []*host, use func(*inventory.Table)) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := f.now()
	seen := make([]inventory.Host, len(hosts))
	for i, h := range hosts {
		seen[i] = h.lookAt(now)
	}
	use(inventory.NewTable(seen))
	return nil
}

// selectHosts returns the hosts that a target selects, by name. Errors: harp.ErrInvalid (target),
// harp.ErrNotFound, context.Cause.
func (f *fleet) selectHosts(ctx context.Context, text string) (selected []*host, err error) {
	m, err := f.compileTarget(text)
	if err != nil {
		return nil, err
	}
	err = f.hosts.findInOneRegistry(func() error {
		selected, err = f.matchHosts(ctx, m)
		return err
	})
	if err == nil && len(selected) == 0 {
		err = noHostError(text)
	}
	return selected, err
}

// matchHosts is selectHosts for a target that was read.
func (f *fleet) matchHosts(ctx context.Context, m *target.Matcher) (selected []*host, err error) {
	names, only := m.Names()
	if selected, err = f.findNames(names); err != nil || only {
		return selected, cmp.Or(err, context.Cause(ctx))
	}
	if f.hosts.unread.Load() {
		return nil, registryUnreadError()
	}
	selected = nil
	for from, first := "", true; first || from != ""; first = false {
		var some []*host
		some, from = f.hosts.page(from, matchedAtOnce)
		if some, err = f.selectAmong(ctx, m, some); err != nil {
			return nil, err
		}
		selected = append(selected, some...)
	}
	return selected, nil
}

// explain says what each part of a target selects: of all hosts, or of one. Errors:
// harp.ErrInvalid (target), harp.ErrNotFound (the host), context.Cause.
func (f *fleet) explain(ctx context.Context, text, name string) (explained target.Node, err error) {
	m, err := f.compileTarget(text)
	if err != nil {
		return target.Node{}, err
	}
	if name != "" {
		h := f.hosts.findKnown(name)
		if h == nil {
			return target.Node{}, failures.NotFound("host", name)
		}
		err = f.look(ctx, []*host{h}, func(t *inventory.Table) { explained = m.Explain(t.Host(0)) })
		return explained, err
	}
	err = f.hosts.findInOneRegistry(func() error {
		explained, err = f.count(ctx, m)
		return err
	})
	return explained, err
}

// count says how many hosts each part of a target selects. Errors: context.Cause.
func (f *fleet) count(ctx context.Context, m *target.Matcher) (counted target.Node, err error) {
	for from, first := "", true; first || from != ""; first = false {
		chunk, next := f.hosts.page(from, matchedAtOnce)
		err := f.look(ctx, chunk, func(t *inventory.Table) {
			some := m.Count(t)
			if first {
				counted = some
				return
			}
			addCounts(&counted, some)
		})
		if err != nil {
			return target.Node{}, err
		}
		from = next
	}
	return counted, nil
}

// addCounts adds the counts of other hosts to those of the same parts.
func addCounts(to *target.Node, n target.Node) {
	to.Hosts += n.Hosts
	for i := range to.Parts {
		addCounts(&to.Parts[i], n.Parts[i])
	}
}

// candidates are the hosts that a target selects for a call, as they are at one moment: what a
// batch freezes and a preview counts.
type candidates struct {
	hosts   []candidate // by name
	classes []class
	gone    []string // that are left out, as they are not known any more, by name
}

// noteSilent has hosts count as away that did not answer.
func (c *candidates) noteSilent(silent map[string]bool) {
	for i := range c.hosts {
		if h := &c.hosts[i]; silent[h.name] {
			h.away, h.silent = true, true
		}
	}
}

// candidate is a host that a target selects.
type candidate struct {
	name   string
	class  int  // its place among the classes
	away   bool // neither online nor about to come back
	silent bool // did not answer when it was asked
}

// class is one of the ways in which hosts offer the procedure of a call, or do not.
type class struct {
	proc       harp.ProcedureDoc // of those that have not said what they offer, its name alone
	said       bool              // they have said what they offer, and the procedure is part of it
	secretArgs []string          // which arguments are not to be shown
	unfit      error             // harp.ErrNotFound: it is lacking; *harp.FieldError: the arguments do not fit; nil: fit; of a chain that of any step
	then       []class           // the further steps of a chain
}

// ofStep is the class as to a step of its chain, from 0.
func (c *class) ofStep(n int) *class {
	if n == 0 {
		return c
	}
	return &c.then[n-1]
}

// isDangerous reports whether the procedure is declared so; of a chain that of any step.
func (c *class) isDangerous() bool {
	return slices.Contains(c.proc.Traits, harp.TraitDangerous) || slices.ContainsFunc(c.then, func(step class) bool { return step.isDangerous() })
}

// findCandidates returns the hosts that a target selects for a call. Errors: harp.ErrInvalid (target),
// harp.ErrNotFound (a host that is written out, or no host at all), context.Cause.
func (f *fleet) findCandidates(ctx context.Context, text, procedure string, args harp.Value) (*candidates, error) {
	hosts, err := f.selectHosts(ctx, text)
	if err != nil {
		return nil, err
	}
	return f.judgeHosts(ctx, hosts, procedure, args)
}

// judgeHosts makes some hosts, by name, the candidates for a call. Procedure and arguments are judged
// once for each distinct procedure of that name. Errors: context.Cause.
func (f *fleet) judgeHosts(ctx context.Context, hosts []*host, procedure string, args harp.Value, then ...harp.ChainStep) (*candidates, error) {
	j := f.newJudge(procedure, args, then)
	if err := j.addHosts(ctx, hosts); err != nil {
		return nil, err
	}
	return &j.found, nil
}

// digestedBytes is how much of a hash stands in the digest of a preview.
const digestedBytes = 14

// previewDigest tells what was confirmed apart from what is submitted: how many hosts there are, SHA-256 over their
// names in their order, each after its length as two bytes, and that of the request.
func (c *candidates) previewDigest(req harp.Request) string {
	h := sha256.New()
	var head [2]byte
	for _, one := range c.hosts {
		binary.BigEndian.PutUint16(head[:], uint16(len(one.name))) //nolint:gosec // at most 255
		h.Write(head[:])
		io.WriteString(h, one.name) //nolint:errcheck // a hash takes everything
	}
	of := req.Digest()
	return fmt.Sprintf("%d-%x-%x", len(c.hosts), h.Sum(nil)[:digestedBytes], of[:digestedBytes])
}

// checkConfirmed refuses a batch that is another than the one that was confirmed, or has other hosts now. Errors:
// harp.ErrConflict, which says how many hosts there were and are.
func (c *candidates) checkConfirmed(req harp.Request) error {
	said, is := req.Batch.Confirmed, c.previewDigest(req)
	if said == "" || said == is {
		return nil
	}
	were, _, _ := strings.Cut(said, "-")
	if n, err := strconv.Atoi(were); err != nil || n < 0 {
		return conflictOf(conflictConfirmed, "confirmed: is not the digest of a preview")
	}
	const ofHosts = 2 // parts of it
	if strings.HasPrefix(said, strings.Join(strings.SplitN(is, "-", ofHosts+1)[:ofHosts], "-")+"-") {
		return conflictOf(conflictConfirmed, "confirmed: another request was confirmed than is submitted")
	}
	what := "the target selects other hosts now"
	if req.RetryOf != "" {
		what = "other hosts are to be called again now"
	}
	return conflictOf(conflictConfirmed, fmt.Sprintf("confirmed: %s than were confirmed: %d, where there were %s", what, len(c.hosts), were))
}

// judge finds the classes of hosts.
type judge struct {
	catalogues *catalogues
	calls      []harp.ChainStep // the procedure and those of further steps, with their arguments

	found            candidates
	classes          map[digest]int // by the procedure; of those that lack it, and that have said nothing, by a word
	catalogueClasses map[*catalogue]int
}

func (f *fleet) newJudge(procedure string, args harp.Value, then []harp.ChainStep) *judge {
	return &judge{
		catalogues: f.hosts.catalogues, calls: append([]harp.ChainStep{{Procedure: procedure, Args: args}}, then...),
		classes: map[digest]int{}, catalogueClasses: map[*catalogue]int{},
	}
}

// addHosts makes hosts candidates. Errors: context.Cause.
func (j *judge) addHosts(ctx context.Context, some []*host) error {
	for _, h := range some {
		offers, away := h.offered()
		n := j.classOf(ctx, offers, h.currentSession() != nil)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		j.found.hosts = append(j.found.hosts, candidate{name: h.name, class: n, away: away})
	}
	return nil
}

// classOf returns the class of the hosts that have a catalogue. One that is online has said what it offers, though
// that be nothing.
func (j *judge) classOf(ctx context.Context, c *catalogue, isOnline bool) int {
	n, known := j.catalogueClasses[c]
	if known {
		return n
	}
	key := j.keyOf(c, isOnline)
	if n, known = j.classes[key]; !known {
		n = len(j.found.classes)
		j.classes[key] = n
		j.found.classes = append(j.found.classes, j.newClass(ctx, c, isOnline))
	}
	if len(c.docs) > 0 { // each host that has said nothing has an empty one of its own
		j.catalogueClasses[c] = n
	}
	return n
}

// keyOf tells catalogues apart that offer the procedures differently.
func (j *judge) keyOf(c *catalogue, isOnline bool) (key digest) {
	var all []byte
	for n := range j.calls {
		key = digest{}
		at, found := c.findProcedure(j.calls[n].Procedure)
		switch {
		case found:
			key = digestOf(c.docs[at : at+1])
		case len(c.docs) == 0 && !isOnline:
			copy(key[:], "nothing said")
		default:
			copy(key[:], "lacking")
		}
		all = append(all, key[:]...)
	}
	if len(j.calls) > 1 {
		key = sha256.Sum256(all)
	}
	return key
}

// newClass judges the calls by a catalogue.
func (j *judge) newClass(ctx context.Context, c *catalogue, isOnline bool) (of class) {
	for n, call := range j.calls {
		var made class
		var found bool
		var at int
		at, found = c.findProcedure(call.Procedure)
		if made.proc, made.unfit = j.catalogues.checkCall(ctx, c, call.Procedure, call.Args); found {
			made.said = true
			made.secretArgs = j.catalogues.secretArgs(c, at, call.Args)
		} else if isOnline {
			made.unfit = failures.NotFound("procedure", call.Procedure)
		}
		if n == 0 {
			of = made
			continue
		}
		of.then = append(of.then, made)
		if of.unfit == nil {
			of.unfit = harp.InStep(n+1, made.unfit)
		}
	}
	return of
}

// previewed is how many hosts of a kind a preview names.
const previewed = 100

func (c *candidates) sumUp() *harp.Preview {
	p := &harp.Preview{Hosts: len(c.hosts), Gone: len(c.gone), GoneHosts: c.gone[:min(len(c.gone), previewed)]}
	for _, one := range c.hosts {
		class := c.classes[one.class]
		if one.away {
			if p.Away++; p.Away <= previewed {
				p.AwayHosts = append(p.AwayHosts, one.name)
			}
		}
		if class.unfit == nil {
			p.Dangerous = p.Dangerous || class.isDangerous()
		} else if p.Unfit++; p.Unfit <= previewed {
			p.UnfitHosts = append(p.UnfitHosts, harp.UnfitHost{Host: one.name, Err: class.unfit})
		}
	}
	return p
}

// PreviewBatch implements harp.HostService.
func (s *service) PreviewBatch(ctx context.Context, call harp.Submission) (harp.Preview, error) {
	return request(s, ctx, func(ctx context.Context) (harp.Preview, error) {
		req, err := harp.DecodeRequest(call.Request)
		if err != nil {
			return harp.Preview{}, err
		}
		if !req.IsBatch() {
			return harp.Preview{}, &harp.FieldError{Field: "target", Message: "must not be empty"}
		}
		now := s.d.now()
		if err := checkCall(call, req, now); err != nil {
			return harp.Preview{}, err
		}
		weight := weightOf(call)
		var silent map[string]bool
		if req.Batch.Probe {
			if silent, err = s.d.findSilent(ctx, req, call.Hosts, s.who, weight); err != nil {
				return harp.Preview{}, err
			}
		}
		if err := s.d.turns.awaitTurn(ctx, s.who, weight); err != nil {
			return harp.Preview{}, err
		}
		defer s.d.turns.leaveTurn(s.who, weight)
		return s.d.previewBatch(ctx, req, call.Hosts, silent, now)
	})
}

// previewBatch says what a batch would meet, where silent are hosts that did not answer. Errors: those of findBatchHosts.
func (d *Dispatcher) previewBatch(ctx context.Context, req harp.Request, listed []byte, silent map[string]bool, now time.Time) (harp.Preview, error) {
	found, err := d.findBatchHosts(ctx, req, listed)
	if err != nil {
		return harp.Preview{}, err
	}
	found.noteSilent(silent)
	p := *found.sumUp()
	p.Digest = found.previewDigest(req)
	p.Held = d.startsAmong(found, window.Start{Procedure: req.Procedure}).heldAt(now).hosts
	if req.Batch.Subset != "" {
		req.WhenOffline = harp.WaitForHost // which hosts it has is up to the id of what is submitted
	}
	refused := checkNeeds(req, now)
	if refused == nil {
		_, refused = d.judgeBatch(req, found, now)
	}
	p.Refusal = harp.FailureOf(refused)
	return p, nil
}

// selectPage is that of the fleet. A long target takes its principal's turn, as a preview of it does: to read
// one of a megabyte takes tens of milliseconds and megabytes.
func (s *service) selectPage(ctx context.Context, text, cursor string, n int) ([]*host, string, error) {
	if weight := weightOfBytes(len(text)); weight > 1 {
		if err := s.d.turns.awaitTurn(ctx, s.who, weight); err != nil {
			return nil, "", err
		}
		defer s.d.turns.leaveTurn(s.who, weight)
	}
	return s.d.fleet.selectPage(ctx, text, cursor, n)
}

// ListHosts implements harp.HostService.
func (s *service) ListHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostStatus], error) {
	type page = harp.Page[harp.HostStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		var hosts []*host
		var out page
		var err error
		if text == "" {
			hosts, out.Cursor = s.d.hosts.page(cursor, pageSize)
		} else if hosts, out.Cursor, err = s.selectPage(ctx, text, cursor, pageSize); err != nil {
			return page{}, err
		}
		now := s.d.now()
		for _, h := range hosts {
			status := h.status()
			if !isPaused(status.Pause, now) {
				status.Pause = nil
			}
			out.Items = append(out.Items, status)
		}
		return out, nil
	})
}

// ExplainTarget implements harp.HostService.
func (s *service) ExplainTarget(ctx context.Context, text, host string) (target.Node, error) {
	return request(s, ctx, func(ctx context.Context) (target.Node, error) { return s.d.fleet.explain(ctx, text, host) })
}
