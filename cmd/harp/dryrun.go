package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

// bindDryRun adds the flag with which a command says what it would do.
func bindDryRun(cmd *cobra.Command, dry *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "print what would be done, and do nothing")
}

// would prints what a command would do: the fields it would print, or a text.
func (c *cli) would(fields object, format string, a ...any) error {
	if c.format != formatText {
		return c.printObject(append(object{{"dry_run", true}}, fields...))
	}
	c.say(format, a...)
	return nil
}

// wouldNotError says that what was asked for only to see would be refused.
type wouldNotError struct{ why string }

func (e *wouldNotError) Error() string { return "would be refused: " + e.why }

// Is reports whether target is harp.ErrRefused.
func (e *wouldNotError) Is(target error) bool { return target == harp.ErrRefused }

// sink takes a call instead of a dispatcher: so the call is made as any other, and
// what would be sent is known.
type sink struct {
	harp.Service
	request harp.Request
}

// Submit implements harp.Service.
func (s *sink) Submit(_ context.Context, calls []harp.Submission) ([]harp.Submitted, error) {
	var err error
	s.request, err = harp.DecodeRequest(calls[0].Request)
	return []harp.Submitted{{ID: s.request.ID}}, err
}

// plan is what would become of a call.
type plan struct {
	request harp.Request
	host    harp.HostStatus
	queue   *harp.QueueStatus // nil: none, or one that is not there yet
	timeout time.Duration     // 0: the dispatcher's default
	maxExec time.Duration
	why     string   // it would be refused; "": it would run
	waits   []string // for what, before it starts
}

// makePlan asks what a call would meet.
func (c *cli) makePlan(ctx context.Context, caller *harp.Caller, doc harp.ProcedureDoc, req harp.Request) (*plan, error) {
	host, err := caller.Hosts().Get(ctx, req.Host)
	if err != nil {
		return nil, err
	}
	if req.Args, err = withoutSecrets(doc, req.Args); err != nil {
		return nil, err
	}
	p := &plan{request: req, host: host}
	if !req.Queue.IsNil() {
		switch q, err := caller.Queues().Get(ctx, req.Queue); {
		case err == nil:
			p.queue = &q
		case !errors.Is(err, harp.ErrNotFound):
			return nil, err
		}
	}
	p.timeout = p.effectiveLimit("silence_timeout", req.SilenceTimeout, doc.SilenceTimeout)
	p.maxExec = p.effectiveLimit("max_exec_time", req.MaxExecTime, doc.MaxExecTime)
	c.predictStart(p, time.Now())
	verdict, err := judgePlan(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	var held []string
	for _, o := range verdict.Obstacles {
		held = append(held, "the "+c.windowText(o))
	}
	if verdict.Mode == harp.WindowRefuse {
		p.why = cmp.Or(p.why, strings.Join(held, ", and "))
	} else {
		p.waits = append(p.waits, held...)
	}
	return p, nil
}

// judgePlan asks what maintenance makes of a call when it may start first. If that is so far ahead that nothing is known
// of it yet, nothing is in the way.
func judgePlan(ctx context.Context, caller *harp.Caller, req harp.Request) (harp.Verdict, error) {
	at := req.StartAfter
	if !at.After(time.Now()) {
		at = time.Time{}
	}
	v, err := caller.Maintenance().Why(ctx, req.Host, req.Procedure, at)
	var wrong *harp.FieldError
	if errors.As(err, &wrong) && wrong.Field == "at" {
		return harp.Verdict{}, nil
	}
	return v, err
}

// withoutSecrets returns the arguments as they may be shown: by name, and without those
// that the procedure declares secret.
func withoutSecrets(doc harp.ProcedureDoc, args harp.Value) (harp.Value, error) {
	named, err := schema.Named(doc.Params, args)
	if err != nil {
		return nil, err
	}
	known, err := schema.Compile(doc)
	if err != nil {
		return nil, err
	}
	return schema.HideArgs(named, known.SecretArgs(named))
}

// effectiveLimit is a time limit of the call; the procedure's own is a cap as well.
func (p *plan) effectiveLimit(name string, asked, own time.Duration) time.Duration {
	if own > 0 && asked > own {
		p.why = name + " of " + durationText(asked) + " is more than the procedure's own, " + durationText(own)
	}
	return cmp.Or(asked, own)
}

// predictStart says whether the call would run and what it would wait for.
func (c *cli) predictStart(p *plan, now time.Time) {
	r := p.request
	if !r.StartBefore.IsZero() && !r.StartBefore.After(now) {
		p.why = "its start time has passed"
	}
	if !p.host.Online {
		if r.WhenOffline == harp.FailFast {
			p.why = "the host is away"
		}
		p.waits = append(p.waits, "the host, which is away")
	}
	if r.StartAfter.After(now) {
		p.waits = append(p.waits, "its start time, in "+age(r.StartAfter.Sub(now)))
	}
	if q := p.queue; q != nil {
		switch {
		case q.Pause != nil:
			p.waits = append(p.waits, "the queue, which is paused"+c.pausedByText(harp.Obstacle{By: q.Pause.By, Why: q.Pause.Reason, Until: q.Pause.Until}))
		case q.Waiting > 0 || q.Running >= q.Concurrency:
			p.waits = append(p.waits, "its turn in the queue: "+strconv.Itoa(q.Running)+" running, "+strconv.Itoa(q.Waiting)+" waiting")
		}
	}
}

// verdict is what the plan comes to, in words.
func (p *plan) verdict() string {
	switch {
	case p.why != "":
		return "would be refused: " + p.why
	case len(p.waits) == 0:
		return "would run"
	}
	text := "would run after waiting for " + p.waits[0]
	for _, w := range p.waits[1:] {
		text += ", and " + w
	}
	return text
}

// planned prints a plan. Errors: *wouldNotError when the call would be refused.
func (c *cli) planned(p *plan) error {
	r := p.request
	if c.format != formatText {
		err := c.printObject(object{
			{"dry_run", true},
			{"host", r.Host},
			{"online", p.host.Online},
			{"procedure", r.Procedure},
			{"args", r.Args},
			{"queue", r.Queue},
			{"concurrency", r.Concurrency},
			{"priority", r.Priority},
			{"silence_timeout", limitJSON(p.timeout)}, // "": the dispatcher's default
			{"max_exec_time", limitJSON(p.maxExec)},
			{"labels", orNoLabels(r.Labels)},
			{"would_run", p.why == ""},
			{"reason", p.why},
			{"waits_for", append([]string{}, p.waits...)},
		})
		return cmp.Or(err, p.refusedErr())
	}
	c.pairs([][2]string{
		{"host", r.Host},
		{"online", yesText(p.host.Online)},
		{"procedure", r.Procedure},
		{"args", valueText(r.Args)},
		{"queue", valueText(r.Queue)},
		{"concurrency", numberText(r.Concurrency)},
		{"priority", numberText(r.Priority)},
		{"silence timeout", cmp.Or(durationText(p.timeout), "the dispatcher's default")},
		{"max exec time", cmp.Or(durationText(p.maxExec), "the dispatcher's default")},
		{"start after", c.clock(r.StartAfter)},
		{"start before", c.clock(r.StartBefore)},
		{"labels", labelText(r.Labels)},
		{"info", valueText(r.Info)},
		{"verdict", p.verdict()},
	})
	return p.refusedErr()
}

func (p *plan) refusedErr() error {
	if p.why == "" {
		return nil
	}
	return &wouldNotError{p.why}
}

func orNoLabels(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// rehearse says what would become of a call. A procedure that has a dry run of its own
// is asked for that, too, if the call would run.
func (c *cli) rehearse(ctx context.Context, caller *harp.Caller, f *callFlags, doc harp.ProcedureDoc, made maker) error {
	var s sink
	if _, err := made(harp.NewCaller(&s)); err != nil {
		return err
	}
	p, err := c.makePlan(ctx, caller, doc, s.request)
	if err != nil {
		return err
	}
	if p.why != "" || !slices.Contains(doc.Traits, harp.TraitDryRun) {
		return c.planned(p)
	}
	c.notice("%s %s: %s", s.request.Procedure, valueText(p.request.Args), p.verdict())
	job, err := made(caller, harp.DryRun())
	if err != nil {
		return didNotRun(err)
	}
	return c.called(ctx, job, f, "dry run as job "+job.ID()+" on "+s.request.Host)
}

// limitJSON is a limit as all JSON has it; "" if it is the default.
func limitJSON(d time.Duration) string {
	if d == 0 || d == harp.NoLimit {
		return durationText(d)
	}
	return d.String()
}
