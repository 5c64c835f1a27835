package dispatcher

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/store"
)

const membersAtOnce = 500 // that are read at a time

// submitBatch decides whether a batch is good, and stores it with the names of its hosts in one
// commit. Its hosts are reached by the clock. One that would be refused now may be stored already:
// then it is the same batch, whatever has become of the hosts since. Silent are hosts that did not answer.
func (d *Dispatcher) submitBatch(ctx context.Context, call harp.Submission, req harp.Request, who harp.Principal, silent map[string]bool, now time.Time) (harp.Submitted, error) {
	sub, counted, refused := d.prepareBatch(ctx, call, req, who, silent, now)
	got, err := d.store.SubmitBatch(ctx, sub, now)
	if err != nil || !got.New {
		d.principals.countBytes(who, -counted)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		return harp.Submitted{}, notStored(err)
	}
	if refused != nil && errors.Is(err, harp.ErrNotFound) {
		if err = refused; ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			err = notStored(err)
		}
	}
	if err != nil {
		return harp.Submitted{}, err
	}
	if got.New {
		d.requests.add(got.Batch.ID, sub.Request)
		d.wakeClock()
	}
	return harp.Submitted{ID: got.Batch.ID, Existed: !got.New}, nil
}

// prepareBatch makes what is stored of a batch, and returns how many bytes it counts as, and why it is not good,
// if it is not.
func (d *Dispatcher) prepareBatch(ctx context.Context, call harp.Submission, req harp.Request, who harp.Principal, silent map[string]bool, now time.Time) (sub store.BatchSubmission, counted int, refused error) {
	sub, refused = d.admitBatch(ctx, req, call.Hosts, silent, now)
	if refused == nil {
		refused = checkCall(call, req, now)
	}
	if refused == nil {
		counted, refused = d.principals.admitCalls(who, call, len(sub.Hosts))
	}
	call.Hosts = nil // they are stored as those of the members, none of which is sent all of them
	sub.Batch.ID, sub.Batch.Member.Principal = req.ID, who
	sub.Request, sub.Digest, sub.Refused = call, req.Digest(), refused != nil
	sub.Key, sub.KeyUntil, sub.Most = idempotencyKey(req, who), now.Add(req.IdempotencyTTL), d.principals.quota(who)
	return sub, counted, refused
}

// admitBatch makes the row of a batch that is good, with the hosts that it is frozen to.
func (d *Dispatcher) admitBatch(ctx context.Context, req harp.Request, listed []byte, silent map[string]bool, now time.Time) (sub store.BatchSubmission, err error) {
	if err := checkNeeds(req, now); err != nil {
		return sub, err
	}
	found, err := d.findBatchHosts(ctx, req, listed)
	if err != nil {
		return sub, err
	}
	found.noteSilent(silent)
	return d.judgeBatch(req, found, now)
}

// judgeBatch is admitBatch for the hosts that were found.
func (d *Dispatcher) judgeBatch(req harp.Request, found *candidates, now time.Time) (sub store.BatchSubmission, err error) {
	if err := d.checkHosts(req, found); err != nil {
		return sub, err
	}
	hosts, err := chooseHosts(req, found.hosts)
	if err != nil {
		return sub, err
	}
	if err := checkQueues(req, hosts); err != nil {
		return sub, err
	}
	if req.WhenOffline == harp.FailFast {
		chosen := candidates{hosts: hosts, classes: found.classes}
		if err := failures.CheckPresent(chosen.sumUp()); err != nil {
			return sub, err
		}
	}
	sub.Batch = store.Batch{
		Target: req.Target, Gone: len(found.gone), SkipAway: req.WhenOffline == harp.SkipHost, SkipHeld: req.Batch.WhenHeld == harp.SkipHost, QueuePerHost: req.Batch.QueuePerHost, EachStep: req.Batch.EachStep,
		Member: d.newJob(req, now),
	}
	sub.Batch.Member.ID, sub.Batch.Member.Drift = "", req.Batch.Drift
	if sub.Batch.Plan, err = d.planBatch(req, len(hosts)); err != nil {
		return sub, err
	}
	if sub.Batch.Classes, sub.Batch.Steps, err = d.grantSteps(req, found.classes); err != nil {
		return sub, err
	}
	for _, h := range hosts {
		host := store.BatchHost{Name: h.name, Class: h.class}
		if found.classes[h.class].unfit != nil {
			host.Unfit = harp.ReasonUnfit
		} else if sub.Batch.SkipAway && h.silent {
			host.Unfit = harp.ReasonOffline
		}
		sub.Hosts = append(sub.Hosts, host)
	}
	return sub, nil
}

// findBatchHosts returns the hosts that the target of a batch selects, that it lists, or those of the batch
// that it makes again. Errors: those of findCandidates; harp.ErrInvalid (hosts), harp.ErrConflict, harp.ErrPruned.
func (d *Dispatcher) findBatchHosts(ctx context.Context, req harp.Request, listed []byte) (*candidates, error) {
	found, err := d.findSelected(ctx, req, listed)
	if err == nil && req.Batch.Drift != "" {
		found.checkDrift()
	}
	return found, err
}

// findSelected is findBatchHosts for any batch, be it a check or not.
func (d *Dispatcher) findSelected(ctx context.Context, req harp.Request, listed []byte) (*candidates, error) {
	hosts, gone, err := d.selectBatchHosts(ctx, req, listed)
	if err != nil {
		return nil, err
	}
	found, err := d.fleet.judgeHosts(ctx, hosts, req.Procedure, req.Args, req.Batch.Then...)
	if err == nil {
		found.gone = gone
	}
	return found, err
}

// selectBatchHosts is findBatchHosts without what the hosts make of the call. Gone are those that it would have if they were known.
func (d *Dispatcher) selectBatchHosts(ctx context.Context, req harp.Request, listed []byte) (hosts []*host, gone []string, err error) {
	switch {
	case req.RetryOf != "":
		return d.retriedHosts(ctx, req)
	case req.List != nil:
		hosts, err = d.listedHosts(req, listed)
	default:
		hosts, err = d.fleet.selectHosts(ctx, req.Target)
	}
	return hosts, nil, err
}

// listedHosts are the hosts that a batch lists, by name. Errors: harp.ErrInvalid (hosts), harp.ErrNotFound.
func (d *Dispatcher) listedHosts(req harp.Request, listed []byte) (hosts []*host, err error) {
	names, err := req.List.Names(listed)
	if err != nil {
		return nil, err
	}
	err = d.hosts.findInOneRegistry(func() error {
		hosts, err = d.fleet.findNames(names)
		return err
	})
	return hosts, err
}

// retriedHosts are the known hosts on which members of a batch ended in a state that is to be made again, by
// name, and the names of those that are not known any more. Errors: harp.ErrNotFound, harp.ErrPruned, harp.ErrConflict while it runs.
func (d *Dispatcher) retriedHosts(ctx context.Context, req harp.Request) (hosts []*host, gone []string, err error) {
	old, err := d.readBatch(ctx, req.RetryOf)
	if err != nil {
		return nil, nil, err
	}
	if !old.State.Ended() && old.State != harp.BatchPaused {
		return nil, nil, conflictOf(conflictRetry, "batch "+old.ID+" is "+string(old.State)+": it has to end, or be paused, before it is retried")
	}
	steps := old.StepCount()
	atOnce := steps * max(1, membersAtOnce/steps)
	var names []string
	for from := 0; from < old.Hosts*steps; from += atOnce {
		members, err := d.store.BatchMembers(ctx, old.ID, from, atOnce)
		if err != nil {
			return nil, nil, err
		}
		for of := range slices.Chunk(members, steps) {
			if j, started := outcomeOf(of); j != nil && req.Batch.Retries(j.State, j.Reason, started) {
				names = append(names, j.Host)
			}
		}
	}
	slices.Sort(names)
	unread := d.hosts.unread.Load() // before they are looked for: it may be read meanwhile
	for _, name := range names {
		if h := d.hosts.findKnown(name); h != nil {
			hosts = append(hosts, h)
		} else {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 && unread {
		return nil, nil, registryUnreadError()
	}
	if len(hosts) == 0 {
		f := failures.New("not_found", "batch "+req.RetryOf+" has no member that ended as "+strings.Join(req.Batch.Retry, ", ")+" on a host that is known")
		f.Type = "target"
		return nil, nil, f.Err()
	}
	return hosts, gone, nil
}

// checkHosts refuses a batch that has more hosts than it may, others than were confirmed, or such as
// cannot run its call. Errors: harp.ErrRefused, harp.ErrConflict, harp.ErrNotFound, harp.ErrInvalid.
func (d *Dispatcher) checkHosts(req harp.Request, found *candidates) error {
	n, limits := len(found.hosts), &req.Batch
	if err := failures.CheckHostCount(limits, n); err != nil {
		return err
	}
	if n > d.cfg.Limits.BatchHosts {
		return failures.New("refused", fmt.Sprintf("limits.batch_hosts: the target selects %d hosts, at most %d may be called at a time", n, d.cfg.Limits.BatchHosts)).Err()
	}
	if err := found.checkConfirmed(req); err != nil {
		return err
	}
	if limits.WhenUnfit == harp.SkipHost {
		return nil
	}
	return failures.CheckFit(found.sumUp())
}

// checkQueues refuses a batch with a queue for each host where a name of one would be too long: those hosts would share one. Errors:
// harp.ErrInvalid (queue).
func checkQueues(req harp.Request, hosts []candidate) error {
	if !req.Batch.QueuePerHost {
		return nil
	}
	longest := ""
	for _, h := range hosts {
		if len(h.name) > len(longest) {
			longest = h.name
		}
	}
	if _, err := store.QueueOn(req.Queue, longest); err != nil {
		return &harp.FieldError{Field: "queue", Message: fmt.Sprintf("has no room for the name of host %s: with that it may be %d bytes long", longest, harp.MaxQueueName)}
	}
	return nil
}

// chooseHosts returns those of the hosts, which are sorted, that the batch is for, in the order in which
// they are reached. Chance is the batch's id. Errors: as harp.ShareOf.
func chooseHosts(req harp.Request, hosts []candidate) ([]candidate, error) {
	n := len(hosts)
	if req.Batch.Subset != "" {
		var err error
		if n, err = harp.ShareOf(req.Batch.Subset, n); err != nil {
			return nil, err
		}
	} else if !req.Batch.Shuffle {
		return hosts, nil
	}
	hosts = slices.Clone(hosts)
	id, _ := uuid.Parse(req.ID)
	chance := rand.New(rand.NewPCG(binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:]))) //nolint:gosec // no secret
	chance.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	hosts = hosts[:n]
	if !req.Batch.Shuffle {
		slices.SortFunc(hosts, func(a, b candidate) int { return cmp.Compare(a.name, b.name) })
	}
	return hosts, nil
}

// planBatch says how a batch goes through so many hosts. Errors: harp.ErrInvalid (rolling), harp.ErrRefused.
func (d *Dispatcher) planBatch(req harp.Request, hosts int) (plan store.BatchPlan, err error) {
	o := &req.Batch
	if o.Parallel > d.cfg.Limits.BatchParallel {
		return plan, failures.New("refused", fmt.Sprintf("parallel of %d is more than limits.batch_parallel of %d", o.Parallel, d.cfg.Limits.BatchParallel)).Err()
	}
	plan = store.BatchPlan{
		WavePause: o.WavePause, Approve: o.Approve, ApproveFirst: o.ApproveFirst, Parallel: cmp.Or(o.Parallel, d.cfg.Limits.BatchParallel), Rate: o.Rate, RatePer: o.RatePer,
		StopCancel: o.OnStop == harp.CancelBatch, MaxPause: d.cfg.Limits.BatchPause, StartAfter: req.StartAfter,
	}
	if o.StopAfter != "" {
		if plan.StopAfter, err = harp.ShareOf(o.StopAfter, hosts); err != nil {
			return plan, err
		}
	}
	plan.Waves, err = o.Waves(hosts)
	return plan, err
}

// grantSteps says what the members of each class of hosts are granted, those of further steps of a chain apart. Errors: as
// grantClasses.
func (d *Dispatcher) grantSteps(req harp.Request, classes []class) (granted []store.BatchClass, further []store.BatchStep, err error) {
	if granted, err = d.grantClasses(req, classes); err != nil {
		return nil, nil, err
	}
	for n, s := range req.Batch.Then {
		at, err := req.AtStep(n + 2)
		if err != nil {
			return nil, nil, err
		}
		of := make([]class, len(classes))
		for i := range classes {
			of[i] = classes[i].then[n]
			of[i].unfit = classes[i].unfit
		}
		step := store.BatchStep{Procedure: s.Procedure, On: s.On}
		if step.Classes, err = d.grantClasses(at, of); err != nil {
			return nil, nil, err
		}
		for i := range classes {
			if mayFollowReboot(req.Batch.Then, n, &classes[i]) {
				step.Classes[i].OfflineWait = req.Batch.RebootTime()
			}
		}
		further = append(further, step)
	}
	return granted, further, nil
}

// mayFollowReboot reports whether the step that ran last before then[n] can be one that ends with a reboot: the one before it, or an earlier
// one behind which all others are left out, as it ended.
func mayFollowReboot(then []harp.ChainStep, n int, of *class) bool {
	for _, end := range []harp.State{harp.StateSucceeded, harp.StateFailed, harp.StateCancelled} {
		if !then[n].On.FitsJob(end) {
			continue
		}
		for last := n; last >= 0; last-- {
			if slices.Contains(of.ofStep(last).proc.Traits, harp.TraitEndsReboot) {
				return true
			}
			if last > 0 && then[last-1].On.FitsJob(end) {
				break
			}
		}
	}
	return false
}

// outcomeOf returns the step that says how a host ended whose steps these are, and whether anything of them ran; nil if it has
// not ended.
func outcomeOf(steps []*store.Job) (*store.Job, harp.Ran) {
	result, last := steps[0], steps[0]
	for _, j := range steps[1:] {
		if j.Reason == harp.ReasonChain { // it did not begin
			continue
		}
		if last = j; result.State == harp.StateSucceeded {
			result = j
		}
	}
	switch {
	case !last.State.Ended():
		return nil, ""
	case result.Step() > 1:
		return result, harp.DidRun
	default:
		return result, result.Started
	}
}

// grantClasses says what the members of each class of hosts are granted. Errors: harp.ErrRefused.
func (d *Dispatcher) grantClasses(req harp.Request, classes []class) (granted []store.BatchClass, err error) {
	for _, c := range classes {
		g := store.BatchClass{Retry: store.GrantRetry(req.Retry, c.proc.Idempotent), SecretArgs: c.secretArgs, ReadOnly: isReadOnly(c.proc)}
		if c.unfit == nil {
			if g.SilenceTimeout, g.MaxExecTime, err = d.grantLimits(req, c.proc); err != nil {
				return nil, err
			}
		}
		granted = append(granted, g)
	}
	return granted, nil
}

// readBatch reads a batch by an id from outside.
func (d *Dispatcher) readBatch(ctx context.Context, id string) (*store.Batch, error) {
	if err := harp.CheckID(id); err != nil {
		return nil, err
	}
	return d.store.Batch(ctx, id)
}

// batchStatus is a batch as callers see it. It shares no memory with the row.
func batchStatus(b *store.Batch) harp.BatchStatus {
	b = b.Clone()
	var steps []string
	for _, s := range b.Steps {
		if steps == nil {
			steps = append(steps, b.Member.Procedure)
		}
		steps = append(steps, s.Procedure)
	}
	early := b.Early
	if b.IsOver() { // then the log tells of them
		early = 0
	}
	return harp.BatchStatus{
		ID: b.ID, Target: b.Target, Procedure: b.Member.Procedure, Steps: steps, RetryOf: b.Member.RetryOf, Schedule: b.Member.Schedule,
		DryRun: b.Member.DryRun, Labels: b.Member.Labels, Caller: b.Member.Principal,
		State: b.State, Reason: b.Reason, Since: b.Since, Hosts: b.Hosts, Reached: b.Reached, Gone: b.Gone, Wave: b.Wave, Waves: len(b.Plan.Waves),
		Parallel: b.Plan.Parallel, StopAfter: b.Plan.StopAfter, Failures: b.Failures, Counts: b.ByState(), Early: early, Skipped: b.Skipped,
		Pause: b.Pause, Cancel: b.Cancel, SubmitTime: b.Member.SubmitTime, EndTime: b.EndTime,
	}
}

// BatchStatus implements harp.BatchService.
func (s *service) BatchStatus(ctx context.Context, id string, wait bool) (harp.BatchStatus, error) {
	return request(s, ctx, func(ctx context.Context) (harp.BatchStatus, error) {
		w := s.d.watchers.acquire(id)
		defer s.d.watchers.release(w)
		for {
			changed := w.changed()
			b, err := s.d.readBatch(ctx, id)
			if err != nil {
				return harp.BatchStatus{}, err
			}
			if b.State.Ended() && b.Member.Drift != "" {
				s.d.awaitMarks() // so that targets of what is called next see them
			}
			if !wait || b.State.Ended() {
				return batchStatus(b), nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return harp.BatchStatus{}, context.Cause(ctx)
			}
		}
	})
}

// ListBatches implements harp.BatchService.
func (s *service) ListBatches(ctx context.Context, f harp.BatchFilter, cursor string) (harp.Page[harp.BatchStatus], error) {
	type page = harp.Page[harp.BatchStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		if err := checkBatchStates(f.States); err != nil {
			return page{}, err
		}
		rows, err := s.d.store.ListBatches(ctx, store.BatchFilter{States: f.States, Procedure: f.Procedure, Limit: pageLimitOf(f.Limit)}, cursor)
		if err != nil {
			return page{}, err
		}
		out := page{Cursor: rows.Cursor}
		for _, b := range rows.Batches {
			out.Items = append(out.Items, batchStatus(b))
		}
		return out, nil
	})
}

// checkBatchStates refuses words that are no states. Errors: *harp.FieldError.
func checkBatchStates(states []harp.BatchState) error {
	unended := []harp.BatchState{harp.BatchRunning, harp.BatchPaused, harp.BatchCancelling}
	for _, s := range states {
		if !s.Ended() && !slices.Contains(unended, s) {
			return &harp.FieldError{Field: "states", Message: fmt.Sprintf("%q is not a state of a batch", s)}
		}
	}
	return nil
}

// ChangeBatch implements harp.BatchService. One commit changes the batch; what of its members follows
// from that the clock does, whether its caller waits or not.
func (s *service) ChangeBatch(ctx context.Context, operation, id string, c harp.BatchChange) (int, error) {
	return request(s, ctx, func(ctx context.Context) (int, error) {
		if err := c.Check(); err != nil {
			return 0, err
		}
		if err := harp.CheckID(id); err != nil {
			return 0, err
		}
		op, err := s.operation(operation)
		if err != nil {
			return 0, err
		}
		done, err := s.d.store.ChangeBatch(ctx, id, store.BatchEvent{Kind: batchEvents[c.Kind], Reason: c.Reason, Wave: c.Wave}, op)
		switch {
		case errors.Is(err, store.ErrIllegal) && c.Kind == harp.CancelOfBatch:
			return 0, nil
		case errors.Is(err, store.ErrIllegal):
			return 0, s.d.illegalChange(ctx, id, c)
		case err != nil:
			return 0, err
		}
		s.d.watchers.notifyChanged(id)
		s.d.wakeClock()
		if c.Kind != harp.CancelOfBatch {
			return 0, nil
		}
		s.d.wakeUnreached([]string{id})
		return done.Count, nil
	})
}

// wakeUnreached wakes all that wait for members of batches whose hosts are not reached any more.
func (d *Dispatcher) wakeUnreached(batches []string) {
	for _, id := range batches {
		d.untilRead("members of a batch that have ended cannot be read yet", id, func() error { return d.notifyUnreached(id) })
	}
}

// notifyUnreached wakes all that wait for members of one. Of a batch that cannot be read each member is looked at by itself.
func (d *Dispatcher) notifyUnreached(id string) error {
	if !d.watchers.hasMembersOf(id) {
		return nil
	}
	err := d.notifyMembers(id)
	if !isLost(err) {
		return err
	}
	err = nil
	for _, member := range slices.Collect(d.watchers.membersOf(id)) {
		err = errors.Join(err, d.notifyUnbegun(member))
	}
	return err
}

// notifyMembers wakes all that wait for members of a batch whose hosts are not reached any more.
func (d *Dispatcher) notifyMembers(id string) error {
	ctx := context.WithoutCancel(d.ctx) // others wait
	b, err := d.store.Batch(ctx, id)
	if err != nil {
		return err
	}
	for from := b.Reached * b.StepCount(); from < b.Hosts*b.StepCount(); from += membersAtOnce {
		members, err := d.store.BatchMembers(ctx, id, from, membersAtOnce)
		if err != nil {
			return err
		}
		for _, j := range members {
			d.notifyEnded(j, nil)
		}
	}
	return nil
}

// batchEvents are what changes of batches are in their lives.
var batchEvents = map[harp.BatchChangeKind]store.BatchEventKind{
	harp.PauseOfBatch: store.BatchPaused, harp.ResumeOfBatch: store.BatchResumed, harp.CancelOfBatch: store.BatchCancel,
}

// illegalChange says why a batch cannot be changed so.
func (d *Dispatcher) illegalChange(ctx context.Context, id string, c harp.BatchChange) error {
	b, err := d.readBatch(ctx, id)
	if err != nil {
		return err
	}
	is := string(b.State)
	if c.Wave > 0 && !b.IsOver() {
		if b.Reason != "" {
			is += " (" + b.Reason + ")"
		}
		if b.Pause != nil && b.Pause.By != (harp.Principal{}) {
			is += " by " + strings.TrimSpace(b.Pause.By.Kind+" "+b.Pause.By.Name)
		}
		return conflictOf("batch", fmt.Sprintf("cannot approve wave %d of batch %s: it is %s in wave %d", c.Wave, id, is, b.Wave))
	}
	return conflictOf("batch", fmt.Sprintf("cannot %s batch %s: it is %s", c.Kind, id, is))
}
