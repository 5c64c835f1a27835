package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

func (c *cli) batchPauseCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "pause ID...",
		Short: "Start nothing more of a batch until it is resumed; what runs goes on",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.asksBatches(func(ctx context.Context, _ *harp.Caller, batch *harp.Batch) error {
			if err := batch.Pause(ctx, why); err != nil {
				return err
			}
			approves := ""
			if s, err := batch.Status(ctx); err == nil && isBeforeWave(s) {
				approves = fmt.Sprintf(", which approves wave %d,", s.Wave)
			}
			return c.saidOfBatch(batch, harp.BatchPaused, "is paused; resume it%s with: harp batch resume %s", approves, batch.ID())
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, as a `text`")
	return cmd
}

func (c *cli) batchResumeCommand() *cobra.Command {
	var wave int
	cmd := &cobra.Command{
		Use:   "resume ID...",
		Short: "Let a paused batch go on; failures are counted from zero again",
		Args:  cobra.MinimumNArgs(1),
	}
	cmd.Flags().IntVar(&wave, "wave", 0, "approve wave `N`, and end no other pause")
	cmd.RunE = c.asksBatches(func(ctx context.Context, _ *harp.Caller, batch *harp.Batch) error {
		resume := batch.Resume
		if cmd.Flags().Changed("wave") {
			resume = func(ctx context.Context) error { return batch.Approve(ctx, wave) }
		}
		if err := resume(ctx); err != nil {
			return err
		}
		return c.saidOfBatch(batch, harp.BatchRunning, "goes on; wait for it with: harp batch results %s", batch.ID())
	})
	return cmd
}

// saidOfBatch says what was done to a batch.
func (c *cli) saidOfBatch(batch *harp.Batch, state harp.BatchState, format string, a ...any) error {
	if c.format == formatJSON {
		return c.printObject(object{{"id", batch.ID()}, {"state", state}})
	}
	c.notice("batch %s %s", batch.ID(), fmt.Sprintf(format, a...))
	return nil
}

func (c *cli) batchCancelCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Start nothing more of a batch, and ask what runs of it to stop",
		Args:  cobra.MinimumNArgs(1),
		RunE: c.asksBatches(func(ctx context.Context, _ *harp.Caller, batch *harp.Batch) error {
			if dry {
				return c.wouldCancelBatch(ctx, batch)
			}
			n, err := batch.Cancel(ctx)
			switch {
			case err != nil:
				return err
			case c.format == formatJSON:
				return c.printObject(object{{"id", batch.ID()}, {"cancelled", n}})
			case n == 0:
				c.notice("batch %s: nothing left to cancel", batch.ID())
			default:
				c.notice("batch %s: cancellation requested for %s", batch.ID(), jobsText(n))
			}
			return nil
		}),
	}
	bindDryRun(cmd, &dry)
	return cmd
}

// wouldCancelBatch says what cancelling a batch would do.
func (c *cli) wouldCancelBatch(ctx context.Context, batch *harp.Batch) error {
	s, err := batch.Status(ctx)
	if err != nil {
		return err
	}
	waiting, running := s.Counts[harp.StateQueued], countIn(s, activeStates)
	return c.would(object{{"id", s.ID}, {"state", s.State}, {"waiting", waiting}, {"running", running}},
		"batch %s is %s: %d of its members would not start, and of %d that may run cancellation would be requested", s.ID, batchStateText(s), waiting, running)
}

// resumeCommand is the command that ends the pause of a batch, and none that comes later.
func resumeCommand(s harp.BatchStatus) string {
	command := "harp batch resume " + s.ID
	if awaitsApproval(s) {
		command += fmt.Sprintf(" --wave %d", s.Wave)
	}
	return command
}

// awaitsApproval reports whether an approval of its wave lets a batch go on: not where somebody has paused it as well.
func awaitsApproval(s harp.BatchStatus) bool {
	return isBeforeWave(s) && (s.Pause == nil || s.Pause.By == (harp.Principal{}))
}

// isBeforeWave reports whether a batch is paused until its wave is approved, whatever it is paused for besides.
func isBeforeWave(s harp.BatchStatus) bool {
	return s.Reason == harp.BatchReasonWave || s.Reason == harp.BatchReasonApproval
}

// retriable are the flags that say which members of a batch are called again, with how the library has
// it.
var retriable = []struct {
	flag, which, usage string
	state              harp.State
}{
	{"failed", "failed", "those that failed", harp.StateFailed},
	{"timed-out", "timed_out", "those that exceeded a time limit", harp.StateTimedOut},
	{"unreachable", "expired", "those that did not start in time, as their hosts were away", harp.StateExpired},
	{"rejected", "rejected", "those that agents refused", harp.StateRejected},
	{"not-started", "cancelled(batch)", "those that did not start before the batch was cancelled", harp.StateCancelled},
	{"cancelled", "cancelled", "all that were cancelled; they may have run in part", ""},
	{"lost", "lost", "those of which nobody knows whether they ran", ""},
}

// retryFlags are the flags with which what failed of a batch is called again.
func retryFlags(s harp.BatchStatus) string {
	flags := ""
	for _, r := range retriable {
		if r.state == harp.StateCancelled && s.Reason == "" { // each by itself, as the batch was not
			continue
		}
		if r.state != "" && s.Counts[r.state] > 0 {
			flags += " --" + r.flag
		}
	}
	return flags
}

func (c *cli) batchRetryCommand() *cobra.Command {
	var f batchFlags
	asked := make([]bool, len(retriable))
	cmd := &cobra.Command{
		Use:   "retry ID",
		Short: "Call the failed hosts of a batch again, as a new batch",
		Long: `Call hosts of a batch again, as a new batch that names the old one: by default those that
failed or did not start. The old batch must have ended or be paused. Procedure, arguments
and options are those of the old batch unless they are given; time limits and retries that
are given hold for every step of a chain. It first says what it will do and asks, as harp
run does; without a terminal only a dangerous procedure needs -y.

Members that were lost, or cancelled while they ran, may have done something: they are
called again only with --lost and --cancelled.`,
		Example:     "  harp batch retry last --failed --unreachable\n  harp batch retry last --failed --parallel 1 -d\n  harp batch retry last --dry-run",
		Args:        cobra.ExactArgs(1),
		Annotations: runs(),
	}
	c.bindBatch(cmd, &f)
	flags := cmd.Flags()
	f.bindChain(flags)
	for i, r := range retriable {
		flags.BoolVar(&asked[i], r.flag, false, r.usage)
	}
	flags.BoolVar(&f.noFold, "no-fold", false, "print the result of each host as it ends, equal ones too")
	flags.BoolVar(&f.follow, "follow", false, "print the records of all hosts, too, as they come")
	_ = flags.MarkHidden("subset")
	c.bindExit(cmd, exitMapped)
	cmd.RunE = c.asksBatch(func(ctx context.Context, caller *harp.Caller, batch *harp.Batch) error {
		var which []string
		for i, r := range retriable {
			if asked[i] {
				which = append(which, r.which)
			}
		}
		return c.retryBatch(ctx, caller, &f, batch, which)
	})
	return cmd
}

// retryBatch calls members of a batch again and, unless detached, waits for their end.
func (c *cli) retryBatch(ctx context.Context, caller *harp.Caller, f *batchFlags, batch *harp.Batch, which []string) error {
	opts, err := f.batchOptions()
	if err != nil {
		return err
	}
	if err := f.checkConcurrency(ctx, caller); err != nil {
		return err
	}
	if f.dryRun && f.options.Drift != "" {
		opts = append(opts, harp.DryRun())
	}
	call := func(more ...harp.Option) (*harp.Batch, error) {
		return batch.Retry(ctx, which, slices.Concat(opts, more)...)
	}
	made := func(again *harp.Batch) error {
		return c.batchMade(ctx, again, f, "batch "+again.ID()+" repeats "+batch.ID())
	}
	p, err := planRetry(ctx, caller, f, batch, which, opts)
	if (errors.Is(err, harp.ErrConflict) || selectsNone(err)) && f.mayExist() && !f.dryRun {
		again, asked := call(harp.Confirmed(noHosts))
		if asked != nil {
			return didNotRun(asked)
		}
		return made(again)
	}
	if err != nil {
		return err
	}
	if f.dryRun {
		return c.rehearseBatch(ctx, p, func(dry harp.Option) (*harp.Batch, error) { return call(dry) })
	}
	if p.why != nil && !f.mayExist() {
		return didNotRun(p.why)
	}
	confirmed, err := c.confirmRetry(ctx, p)
	if err != nil {
		return err
	}
	c.sayNewID(&f.callFlags)
	again, err := call(confirmed...)
	if err != nil {
		return didNotRun(err)
	}
	return made(again)
}

// confirmRetry is confirmBatch for members that are called again: they were confirmed once, so that where nobody can be asked only
// a dangerous procedure needs -y. Errors: as askSure.
func (c *cli) confirmRetry(ctx context.Context, p *batchPlan) ([]harp.Option, error) {
	if !p.preview.Dangerous && (!c.inTerminal || !c.errTerminal) {
		c.notice("%s", p.text())
		return nil, nil
	}
	return c.confirmBatch(ctx, p)
}

// planRetry says what calling members of a batch again would meet. The flags are given the options that it takes over. Errors: as
// harp.Batch.PreviewRetry.
func planRetry(ctx context.Context, caller *harp.Caller, f *batchFlags, batch *harp.Batch, which []string, opts []harp.Option) (*batchPlan, error) {
	seen, req, err := batch.PreviewRetry(ctx, which, opts...)
	if err != nil {
		return nil, err
	}
	f.options = req.Batch
	if f.onlyOutput = req.Procedure == execProcedure; !f.onlyOutput {
		f.dash = -1 // as harp run has it of no command
	}
	p := &batchPlan{flags: f, args: req.Args, target: cmp.Or(req.Target, "hosts of batch "+req.RetryOf), retryOf: req.RetryOf, preview: seen}
	if err := p.count(); err != nil && (f.dryRun || !f.mayExist()) {
		return nil, err
	}
	if p.why != nil && !f.dryRun { // then what is known of the procedures does not matter
		p.doc.Name = req.Procedure
		return p, nil
	}
	if p.doc, err = findForRetry(ctx, caller, req.Target, req.Procedure); err != nil {
		return nil, err
	}
	if len(req.Batch.Then) > 0 {
		f.steps, f.stepDocs = []harp.Step{{Procedure: req.Procedure, Args: req.Args}}, []harp.ProcedureDoc{p.doc}
	}
	for _, s := range req.Batch.Then {
		doc, err := findForRetry(ctx, caller, req.Target, s.Procedure)
		if err != nil {
			return nil, err
		}
		f.steps, f.stepDocs = append(f.steps, harp.Step{Procedure: s.Procedure, Args: s.Args, On: s.On}), append(f.stepDocs, doc)
	}
	return p, nil
}

// findForRetry finds out what a procedure is that is called again: the target may select other hosts by now, or none, or
// its group may be gone.
func findForRetry(ctx context.Context, caller *harp.Caller, target, name string) (harp.ProcedureDoc, error) {
	doc, err := findOnTarget(ctx, caller, target, name)
	if target != "" && selectsNone(err) {
		return findOnTarget(ctx, caller, "", name)
	}
	return doc, err
}
