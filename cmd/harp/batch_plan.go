package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// batchPlan is what a batch would meet.
type batchPlan struct {
	flags   *batchFlags
	doc     harp.ProcedureDoc
	args    any
	target  string
	retryOf string // the batch of which it calls members again; "": none
	preview harp.Preview
	hosts   int   // that would be called
	waves   []int // how many have been called when each is over
	stop    int   // after so many failures; 0: never
	why     error // it would be refused; nil: it would run
}

// count finds out how many hosts there are in the batch and its waves. Errors: *harp.FieldError.
func (p *batchPlan) count() (err error) {
	o := &p.flags.options
	p.hosts = p.preview.Hosts
	if o.Subset != "" {
		if p.hosts, err = harp.ShareOf(o.Subset, p.preview.Hosts); err != nil {
			return err
		}
	}
	if o.StopAfter != "" {
		if p.stop, err = harp.ShareOf(o.StopAfter, p.hosts); err != nil {
			return err
		}
	}
	p.why = p.refusal()
	p.waves, err = o.Waves(p.hosts)
	return err
}

// refusal is why the batch would be refused.
func (p *batchPlan) refusal() error {
	o, seen := &p.flags.options, &p.preview
	err := seen.Refusal.Err()
	switch {
	case err == nil && p.flags.whenOffline == "fail" && o.Subset == "":
		return failures.CheckPresent(seen) // silent hosts are away, too
	case seen.Unfit > 0 && p.flags.whenUnfit != "skip" && (errors.Is(err, harp.ErrNotFound) || errors.Is(err, harp.ErrInvalid)) && failures.CheckHostCount(o, seen.Hosts) == nil:
		return fmt.Errorf("%w; --when-unfit skip leaves them out", err)
	}
	return err
}

func unfitNames(p harp.Preview) []string {
	names := make([]string, len(p.UnfitHosts))
	for i, h := range p.UnfitHosts {
		names[i] = h.Host
	}
	return names
}

// hostCount is a number of hosts.
func hostCount(n int) string {
	if n == 1 {
		return "1 host"
	}
	return strconv.Itoa(n) + " hosts"
}

// text says in one line what the batch will do.
func (p *batchPlan) text() string {
	o, seen := &p.flags.options, p.preview
	text := p.flags.called(p.doc) + " on " + hostCount(p.hosts)
	if p.hosts != seen.Hosts {
		text += " of " + strconv.Itoa(seen.Hosts)
	}
	var odd []string
	if seen.Away > 0 {
		odd = append(odd, strconv.Itoa(seen.Away)+" away")
	}
	if seen.Unfit > 0 {
		odd = append(odd, strconv.Itoa(seen.Unfit)+" unfit")
	}
	if seen.Held > 0 {
		odd = append(odd, strconv.Itoa(seen.Held)+" held")
	}
	if seen.Gone > 0 {
		odd = append(odd, strconv.Itoa(seen.Gone)+" more not known any more")
	}
	if len(odd) > 0 {
		text += " (" + strings.Join(odd, ", ") + ")"
	}
	if o.Parallel > 0 {
		text += fmt.Sprintf(", %d at a time", o.Parallel)
	}
	if len(p.waves) > 1 {
		text += ", in waves up to " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(p.waves)), ", "), "[]")
	}
	if p.stop > 0 {
		text += ", stop after " + failureCount(p.stop)
	}
	if o.ApproveFirst {
		text += ", once it is approved"
	}
	return text
}

func failureCount(n int) string {
	if n == 1 {
		return "1 failure"
	}
	return strconv.Itoa(n) + " failures"
}

// confirmBatch says what will be done and asks, where somebody is to be asked. It returns the option
// that holds the batch to what was confirmed, or to the one host for which nobody is asked. Errors: as askSure.
func (c *cli) confirmBatch(ctx context.Context, p *batchPlan) ([]harp.Option, error) {
	held := []harp.Option{harp.Confirmed(p.preview.Digest)}
	switch {
	case p.flags.sure:
		c.notice("%s", p.text())
		return nil, nil
	case p.hosts == 1 && !p.preview.Dangerous:
		c.notice("%s", p.text())
		return held, nil
	}
	why := p.text()
	if p.preview.Dangerous && p.flags.dash < 0 {
		why += "; " + p.flags.dangerous(p.doc) + " is marked dangerous"
	}
	if err := c.askSure(ctx, why, "Run it?", "nothing was run"); err != nil {
		return nil, err
	}
	return held, nil
}

// rehearseBatch says what would become of a batch. A procedure that has a dry run of its own is
// asked for that, too, if the batch would run; the steps of a chain if all have one.
func (c *cli) rehearseBatch(ctx context.Context, p *batchPlan, run func(dry harp.Option) (*harp.Batch, error)) error {
	if p.why != nil || p.flags.options.Drift == "" && len(p.withoutDryRun()) > 0 { // a check without one is refused
		return c.plannedBatch(p)
	}
	c.notice("would run %s", p.text())
	batch, err := run(harp.DryRun())
	if err != nil {
		return didNotRun(err)
	}
	return c.batchMade(ctx, batch, p.flags, "dry run as batch "+batch.ID())
}

// withoutDryRun names the procedures that have no dry run of their own.
func (p *batchPlan) withoutDryRun() (names []string) {
	docs := p.flags.stepDocs
	if len(docs) == 0 {
		docs = []harp.ProcedureDoc{p.doc}
	}
	for _, doc := range docs {
		if !slices.Contains(doc.Traits, harp.TraitDryRun) && !slices.Contains(names, doc.Name) {
			names = append(names, doc.Name)
		}
	}
	return names
}

// plannedBatch prints a plan. Errors: *wouldNotError when the batch would be refused.
func (c *cli) plannedBatch(p *batchPlan) error {
	args, err := p.shownArgs()
	if err != nil {
		return err
	}
	steps, err := p.shownSteps()
	if err != nil {
		return err
	}
	seen, reason := p.preview, ""
	var refused error
	if p.why != nil {
		reason = strings.TrimPrefix(p.why.Error(), "harp: ")
		refused = &wouldNotError{reason}
	}
	if c.format != formatText {
		what := object{{"dry_run", true}, {"target", p.target}, {"procedure", p.flags.called(p.doc)}, {"args", args}}
		if p.retryOf != "" {
			what = append(what, object{{"retry_of", p.retryOf}}...)
		}
		if len(steps) > 0 {
			what = append(what, object{{"steps", steps}}...)
		}
		err := c.printObject(append(what, object{
			{"preview", seen},
			{"hosts", p.hosts},
			{"waves", p.waves},
			{"stop_after", p.stop},
			{"would_run", p.why == nil},
			{"reason", reason},
		}...))
		return cmp.Or(err, refused)
	}
	verdict := "would run"
	if refused != nil {
		verdict = refused.Error()
	}
	pairs := [][2]string{{"target", p.target}, {"procedure", p.flags.called(p.doc)}}
	if p.retryOf != "" {
		pairs = append(pairs, [2]string{"retry of", p.retryOf})
	}
	for n, s := range steps {
		what := s.Procedure + " " + valueText(s.Args)
		if s.On != "" && s.On != harp.OnSucceeded {
			what += ", on " + string(s.On)
		}
		pairs = append(pairs, [2]string{fmt.Sprintf("step %d", n+1), strings.TrimSpace(what)})
	}
	if len(steps) == 0 {
		pairs = append(pairs, [2]string{"args", valueText(args)})
	} else {
		pairs = append(pairs, [2]string{"no dry run of", strings.Join(p.withoutDryRun(), ", ")})
	}
	c.pairs(append(pairs, [][2]string{
		{"batch", p.text()},
		{"away", strings.Join(seen.AwayHosts, ", ")},
		{"unfit", strings.Join(unfitNames(seen), ", ")},
		{"not known", strings.Join(seen.GoneHosts, ", ")},
		{"verdict", verdict},
	}...))
	return refused
}

// shownSteps are the steps of a chain, without what is secret of their arguments; none of another batch.
func (p *batchPlan) shownSteps() (steps []harp.ChainStep, err error) {
	for n, s := range p.flags.steps {
		shown := harp.ChainStep{Procedure: s.Procedure, On: s.On}
		if shown.Args, err = harp.NewValue(s.Args); err != nil {
			return nil, err
		}
		if shown.Args, err = withoutSecrets(p.flags.stepDocs[n], shown.Args); err != nil {
			return nil, err
		}
		steps = append(steps, shown)
	}
	return steps, nil
}

// shownArgs are the arguments without what is secret.
func (p *batchPlan) shownArgs() (harp.Value, error) {
	v, err := harp.NewValue(p.args)
	if err != nil {
		return nil, err
	}
	return withoutSecrets(p.doc, v)
}

// batchMade says the id of a batch that was just submitted and, unless detached, waits for its end.
func (c *cli) batchMade(ctx context.Context, batch *harp.Batch, f *batchFlags, notice string) error {
	if f.detach {
		return c.printID(batch.ID())
	}
	c.notice("%s", notice)
	w := &batchWatch{cli: c, batch: batch, records: f.follow, output: f.onlyOutput, unfolded: f.noFold, approve: f.options.Approve}
	w.questions = ctx // an interrupt ends them, also where it cancels the batch
	if f.cancel {
		var stop func()
		ctx, stop = c.cancelInstead(ctx, "batch "+batch.ID(), func(ctx context.Context) error {
			_, err := batch.Cancel(ctx)
			w.uncancelled.Store(err != nil)
			return err
		})
		defer stop()
	}
	return w.run(ctx)
}
