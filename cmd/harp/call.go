package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

func (c *cli) callCommand() *cobra.Command {
	var f callFlags
	cmd := &cobra.Command{
		Use:   "call HOST PROCEDURE [NAME=VALUE | NAME:=JSON | @FILE | -]...",
		Short: "Call a procedure and wait for its result",
		Long: `Call a procedure on a host, and print its records as they come and then its result.

The arguments are typed by the procedure's schema (harp proc show) and checked
before anything is sent. Ctrl-C stops waiting, not the job.`,
		Example: `  harp call demo1 hello name=Ada
  harp call -d demo1 count to=20 every=500ms
  harp call web01 service.restart service=nginx --queue host=web01 --timeout 1m`,
		Args:        cobra.MinimumNArgs(2),
		Annotations: calls(),
		RunE: c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
			return c.callHost(ctx, caller, &f, args[0], args[1], args[2:])
		}),
		ValidArgsFunction: c.completeRest(c.asksWords(argumentWords), c.asksWords(hostWords), c.asksWords(procedureWords)),
	}
	c.bindCall(cmd, &f)
	c.bindExit(cmd, exitMapped)
	return cmd
}

// callFlags are the options of a call as flags.
type callFlags struct {
	detach, cancel          bool
	dryRun, sure            bool
	onlyOutput              bool   // the records are all that is printed
	several                 bool   // it is of the hosts of a batch
	chosen                  string // the id that the last options have
	id, info, whenOffline   string
	queue, labels           []string
	concurrency, priority   int
	timeout, maxExec, away  limit
	startAfter, startBefore moment
	retry                   []string
	attempts                int
	backoff, keyTTL         limit
	key                     string
	set                     *pflag.FlagSet
}

// bindCall adds the flags of a call, and those that say how its job is shown.
func (c *cli) bindCall(cmd *cobra.Command, f *callFlags) {
	c.bindCallOptions(cmd, f)
	f.bindOnce(cmd.Flags())
	f.bindWaiting(cmd.Flags())
	c.bindRaw(cmd)
}

// bindCallOptions adds the flags of a call that may be made many times.
func (c *cli) bindCallOptions(cmd *cobra.Command, f *callFlags) {
	f.bind(cmd.Flags())
	bindDryRun(cmd, &f.dryRun)
	c.completeFlag(cmd, "queue", c.asksWords(queueWords))
	c.completeFlag(cmd, "when-offline", fixed(slices.Sorted(maps.Keys(f.offlinePolicies()))...))
	c.completeFlag(cmd, "retry", listed(fixed(string(harp.StateLost), string(harp.StateTimedOut), string(harp.StateFailed))))
}

func (f *callFlags) bind(flags *pflag.FlagSet) {
	f.set = flags
	flags.StringArrayVar(&f.queue, "queue", nil, "wait in the queue of this `name`: a JSON object, or name=value (repeatable)")
	flags.IntVar(&f.concurrency, "concurrency", 0, "`count` of jobs of the queue that may run at a time, if this call creates the queue (default 1)")
	flags.IntVar(&f.priority, "priority", 0, "higher goes first, from -100 to 100")
	flags.Var(&f.timeout, "silence-timeout", "longest silence between records; none: no limit (default 10m; none for procedures without records); --timeout is the same")
	flags.SetNormalizeFunc(withoutOldNames)
	flags.Var(&f.maxExec, "max-exec-time", "longest run, not counting the wait; none: no limit (default 24h)")
	flags.Var(&f.away, "offline-wait", "how long an absent host may hold up the job (default 30s)")
	flags.StringVar(&f.whenOffline, "when-offline", "wait", "`policy` for a host that is away: wait for it, or fail at once")
	flags.StringSliceVar(&f.retry, "retry", nil, "try again after these `outcomes`: lost, timed_out, failed; the procedure may run more than once")
	flags.IntVar(&f.attempts, "attempts", 0, "`count` of attempts in all; 1: no retry, even of an idempotent procedure (default 3)")
	flags.Var(&f.backoff, "backoff", "longest pause before the second attempt; it doubles with each further one (default 1s)")
	flags.StringVar(&f.info, "info", "", "your own data for the job: `JSON`, or a text")
	flags.StringArrayVar(&f.labels, "label", nil, "a label for the job: `key=value` (repeatable)")
}

// bindOnce adds the flags of one call alone.
func (f *callFlags) bindOnce(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.sure, "yes", "y", false, "do not ask before a procedure that is declared dangerous")
	flags.StringVar(&f.id, "id", "", "the job's `id`, chosen by you (see harp id): calling again with it gives the same job; new: make one, and print it before the call is sent")
	flags.Var(&f.startAfter, "start-after", "start no earlier than this time; a duration counts from now")
	flags.Var(&f.startBefore, "start-before", "start by this time, or the job expires; a duration counts from now")
	flags.StringVar(&f.key, "idempotency-key", "", "a `key`: calling again with it gives the same job")
	flags.Var(&f.keyTTL, "idempotency-ttl", "how long the key is remembered (default 10m)")
}

// bindWaiting adds the flags that say whether the job is waited for.
func (f *callFlags) bindWaiting(flags *pflag.FlagSet) {
	flags.BoolVarP(&f.detach, "detach", "d", false, "print the job's id, and do not wait")
	flags.BoolVar(&f.cancel, "cancel-on-interrupt", false, "Ctrl-C cancels the job")
}

// withoutOldNames takes --timeout for --silence-timeout, as it was called.
func withoutOldNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "timeout" {
		name = "silence-timeout"
	}
	return pflag.NormalizedName(name)
}

// options are those of the call. The id is chosen here, so that it is known however
// the call ends.
func (f *callFlags) options() ([]harp.Option, error) {
	if f.id == "" || f.id == newID {
		f.chosen = harp.NewID()
	} else {
		f.chosen = f.id
	}
	o := harp.CallOptions{
		JobID:      f.chosen,
		StartAfter: f.startAfter.t, StartBefore: f.startBefore.t,
	}
	policies := f.offlinePolicies()
	away, ok := policies[f.whenOffline]
	if !ok {
		return nil, invalid("when-offline", "must be %s", oneOf(slices.Sorted(maps.Keys(policies))))
	}
	if f.set.Changed("concurrency") && f.queue == nil {
		return nil, invalid("concurrency", "is for a queue: add --queue")
	}
	if f.queue != nil {
		name, err := dictionary(f.queue)
		if err != nil {
			return nil, err
		}
		o.Queue = name
	}
	if f.set.Changed("info") {
		o.Info = anything(f.info)
	}
	var err error
	if o.Labels, err = labels(f.labels); err != nil {
		return nil, err
	}
	opts := []harp.Option{harp.Options(o)}
	if f.set.Changed("retry") || f.set.Changed("attempts") || f.set.Changed("backoff") {
		opts = append(opts, harp.Retry(f.policy()))
	}
	for name, opt := range map[string]harp.Option{
		"priority":        harp.Priority(f.priority),
		"when-offline":    harp.WhenOffline(away),
		"concurrency":     harp.Concurrency(f.concurrency),
		"silence-timeout": harp.SilenceTimeout(time.Duration(f.timeout)),
		"max-exec-time":   harp.MaxExecTime(time.Duration(f.maxExec)),
		"offline-wait":    harp.OfflineWait(time.Duration(f.away)),

		"idempotency-key": harp.IdempotencyKey(f.key, cmp.Or(time.Duration(f.keyTTL), keyTTL)),
	} {
		if f.set.Changed(name) {
			opts = append(opts, opt)
		}
	}
	if f.set.Changed("idempotency-ttl") && !f.set.Changed("idempotency-key") {
		return nil, invalid("idempotency-ttl", "needs --idempotency-key")
	}
	return opts, nil
}

// offlinePolicies are the words of --when-offline.
func (f *callFlags) offlinePolicies() map[string]harp.OfflinePolicy {
	policies := map[string]harp.OfflinePolicy{"wait": harp.WaitForHost, "fail": harp.FailFast}
	if f.several {
		policies["skip"] = harp.SkipHost
	}
	return policies
}

// checkConcurrency refuses a concurrency that would be ignored, as the queue has another: who
// asks for one at a time relies on it.
func (f *callFlags) checkConcurrency(ctx context.Context, caller *harp.Caller) error {
	if !f.set.Changed("concurrency") {
		return nil
	}
	name, err := dictionary(f.queue)
	if err != nil {
		return err
	}
	q, err := caller.Queues().Get(ctx, name)
	if errors.Is(err, harp.ErrNotFound) {
		return nil
	}
	if _, was := f.findMade(ctx, caller); was { // with the concurrency that the queue had then
		return nil
	}
	if err == nil && q.Concurrency != f.concurrency {
		err = invalid("concurrency", "the queue exists and runs %d at a time; harp queue set changes that", q.Concurrency)
	}
	return err
}

// keyTTL is how long an idempotency key counts unless it is said.
const keyTTL = 10 * time.Minute

// policy is what the flags say about further attempts.
func (f *callFlags) policy() harp.RetryPolicy {
	p := harp.RetryPolicy{Attempts: f.attempts, Backoff: time.Duration(f.backoff)}
	for _, outcome := range f.retry {
		p.On = append(p.On, harp.State(outcome))
	}
	return p
}

// callHost makes the call and, unless detached, waits for its end.
func (c *cli) callHost(ctx context.Context, caller *harp.Caller, f *callFlags, host, procedure string, words []string) error {
	if _, err := f.options(); err != nil {
		return err
	}
	doc, err := f.findCalled(ctx, caller, host, procedure)
	if err != nil {
		return err
	}
	args, err := c.callArguments(ctx, caller, f, doc, words)
	if err != nil {
		return err
	}
	return c.makeCall(ctx, caller, f, doc, host, args)
}

// makeCall makes a call whose arguments are known to fit or, for a dry run, says what
// would become of it.
func (c *cli) makeCall(ctx context.Context, caller *harp.Caller, f *callFlags, doc harp.ProcedureDoc, host string, args any) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	made := func(caller *harp.Caller, more ...harp.Option) (*harp.Job, error) {
		return caller.Host(host, opts...).Call(ctx, doc.Name, args, more...)
	}
	if f.dryRun {
		return c.rehearse(ctx, caller, f, doc, made)
	}
	if err := f.checkConcurrency(ctx, caller); err != nil {
		return err
	}
	if err := c.confirm(ctx, doc, host, f.sure); err != nil {
		return err
	}
	c.sayNewID(f)
	job, err := made(caller)
	if err != nil {
		return didNotRun(err)
	}
	return c.called(ctx, job, f, "job "+job.ID()+" on "+host)
}

// newID is the word with which --id asks for a new id.
const newID = "new"

// mayExist reports whether a call like this may have been made before. The dispatcher looks for that first,
// whatever has become of the hosts since.
func (f *callFlags) mayExist() bool { return f.id != "" && f.id != newID || f.key != "" }

// findCalled is findProcedure, or of a call that may have been made before, on a host that is gone or has it no more, what is known of
// the procedure: the dispatcher judges that call.
func (f *callFlags) findCalled(ctx context.Context, caller *harp.Caller, host, name string) (harp.ProcedureDoc, error) {
	doc, err := findProcedure(ctx, caller, host, name)
	return f.orOfAny(ctx, caller, name, doc, err)
}

// findCalledOnTarget is findCalled for the hosts of a target.
func (f *callFlags) findCalledOnTarget(ctx context.Context, caller *harp.Caller, text, name string) (harp.ProcedureDoc, error) {
	doc, err := findOnTarget(ctx, caller, text, name)
	return f.orOfAny(ctx, caller, name, doc, err)
}

// orOfAny is what any host offers of a procedure that was not found where a call is to be made that may have been made before; if none
// does, its name alone.
func (f *callFlags) orOfAny(ctx context.Context, caller *harp.Caller, name string, doc harp.ProcedureDoc, err error) (harp.ProcedureDoc, error) {
	if f.dryRun || !f.mayExist() || !selectsNone(err) {
		return doc, err
	}
	doc, err = findOnTarget(ctx, caller, "", name)
	if errors.Is(err, harp.ErrNotFound) {
		return harp.ProcedureDoc{Name: name}, nil
	}
	return doc, err
}

// findMade is the request that was submitted under the id of a call, if one was.
func (f *callFlags) findMade(ctx context.Context, caller *harp.Caller) (req harp.Request, was bool) {
	if f.id == "" || f.id == newID {
		return harp.Request{}, false
	}
	req, err := caller.Request(ctx, f.id)
	return req, err == nil
}

// callArguments is c.arguments, or of a call that was made before, what the words were then: hosts may offer the procedure no more, or take
// other arguments now. Whether the call is the same the dispatcher judges.
func (c *cli) callArguments(ctx context.Context, caller *harp.Caller, f *callFlags, doc harp.ProcedureDoc, words []string) (any, error) {
	req, was := f.findMade(ctx, caller)
	if !was || f.dryRun {
		return c.arguments(doc, words)
	}
	before := map[string]harp.Value{}
	if !req.Args.IsNil() {
		_ = req.Args.Decode(&before) // what has no names is of another call
	}
	now, err := schema.Compile(doc)
	if err != nil {
		return nil, err
	}
	args, err := c.gather(words, func(name, text string) (any, error) {
		if v, is := before[name]; is && mayBe(text, v) {
			return v, nil
		}
		return now.Parse(name, text)
	})
	if err != nil {
		return nil, inWords(err)
	}
	return args, nil
}

// mayBe reports whether an argument could be written as a text, whatever type it is said to have.
func mayBe(text string, v harp.Value) bool {
	could := []any{text}
	if is, err := parseJSON([]byte(text)); err == nil {
		could = append(could, is)
	}
	if is, err := strconv.ParseFloat(text, 64); err == nil {
		could = append(could, is)
	}
	if is, err := strconv.ParseBool(text); err == nil {
		could = append(could, is)
	}
	want, err := v.Canonical()
	return err == nil && slices.ContainsFunc(could, func(as any) bool {
		is, err := harp.NewValue(as)
		if err == nil {
			is, err = is.Canonical()
		}
		return err == nil && bytes.Equal(is, want)
	})
}

// selectsNone reports whether an error says that a target selects no hosts, or has a group that is gone.
func selectsNone(err error) bool {
	var wrong *harp.FieldError
	return errors.Is(err, harp.ErrNotFound) || errors.As(err, &wrong) && wrong.Field == "target"
}

// sayNewID says the id of a call that is about to be sent, if that was asked for: then it is known
// also if the program is ended while it waits for the answer.
func (c *cli) sayNewID(f *callFlags) {
	if f.id == newID {
		c.notice("id %s", f.chosen)
	}
}

// maker makes a call by a caller, with more options.
type maker func(caller *harp.Caller, more ...harp.Option) (*harp.Job, error)

// called says the id of a job that was just called and, unless detached, waits for
// its end.
func (c *cli) called(ctx context.Context, job *harp.Job, f *callFlags, notice string) error {
	if f.detach {
		return c.printID(job.ID())
	}
	if c.format == formatText {
		c.notice("%s", notice)
	}
	if f.cancel {
		var stop func()
		ctx, stop = c.cancelInstead(ctx, "job "+job.ID(), func(ctx context.Context) error {
			_, err := job.Cancel(ctx)
			return err
		})
		defer stop()
	}
	return c.watchJob(ctx, job, f.onlyOutput)
}

// didNotRun adds to the failure of a submission what its reader asks next, unless it says that itself.
func didNotRun(err error) error {
	var said interface{ SaysWhetherItRan() }
	if harp.RanOf(err) == harp.DidNotRun && !errors.As(err, &said) {
		return fmt.Errorf("%w; did not run", err)
	}
	return err
}

// printID prints the id of what was submitted. The error says it where that cannot be done.
func (c *cli) printID(id string) error {
	if c.format != formatText && c.format != formatID {
		_ = c.printObject(object{{"id", id}}) // stdout keeps its error
	} else {
		c.say("%s", id)
	}
	if c.stdout.err != nil {
		return fmt.Errorf("%s goes on: %w", id, c.stdout.err)
	}
	return nil
}

// unprinted is an error that, where stdout takes nothing, also says with which command to see what could not be printed: the id may have
// been said nowhere.
func (c *cli) unprinted(err error, again string) error {
	if err == nil || c.stdout.err == nil {
		return err
	}
	return fmt.Errorf("%w; see it with: %s", err, again)
}

// watchJob prints a job's records as they come, then its result, unless only the records
// are wanted.
func (c *cli) watchJob(ctx context.Context, job *harp.Job, onlyOutput bool) (err error) {
	defer c.showWaiting(ctx, job)()
	defer func() { err = c.unprinted(err, "harp job follow "+job.ID()+" --since 0") }()
	p := recordPrinter{cli: c, all: true}
	switch {
	case c.format != formatJSON:
		if err := p.printRecords(job.Follow(ctx, harp.Since(0))); err != nil {
			return unless(ctx, err, p.detached(job))
		}
		if onlyOutput && c.format == formatText {
			_, err := job.Get(ctx)
			return unless(ctx, err, p.detached(job))
		}
	case onlyOutput:
		printed, err := collectOutput(job.Follow(ctx, harp.Since(0)))
		if err != nil {
			return unless(ctx, err, p.detached(job))
		}
		return unless(ctx, c.printResult(ctx, job, nil, printed...), p.detached(job))
	}
	return unless(ctx, c.printResult(ctx, job, &p), p.detached(job))
}

// printResult waits for a job's end and prints its value, unless that was printed as the last
// of its output, or, as JSON, the job with its value and more. It returns how the job failed.
func (c *cli) printResult(ctx context.Context, job *harp.Job, printed *recordPrinter, more ...field) error {
	v, failed := job.Get(ctx)
	if c.format != formatText {
		status, err := job.Status(ctx)
		if err != nil {
			return cmp.Or(failed, err)
		}
		if !status.State.Ended() {
			return failed
		}
		return errors.Join(failed, c.printNoun(status, append([]field{{"value", v}}, more...)...))
	}
	if failed != nil {
		return failed
	}
	c.freshLine()
	if printed != nil && printed.endedWith(v) {
		return nil
	}
	return c.printLine(v)
}

// cancelInstead returns a ctx that outlives the interrupt, which cancels a job or batch
// instead: then its end is what is waited for.
func (c *cli) cancelInstead(ctx context.Context, what string, cancel func(context.Context) error) (context.Context, func()) {
	on := context.WithoutCancel(ctx)
	done := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(done)
		c.notice("cancelling %s; Ctrl-C again stops waiting", what)
		if err := cancel(on); err != nil {
			c.notice("cancel: %s", err)
		}
	})
	return on, func() {
		if !release() {
			<-done
		}
	}
}

// The words of --exit.
const (
	exitMapped = "mapped"
	exitRemote = "remote"
)

// bindExit adds the flag that says what becomes of a command's own exit code.
func (c *cli) bindExit(cmd *cobra.Command, byDefault string) {
	word := byDefault
	cmd.Flags().StringVar(&word, "exit", byDefault, "`code` to exit with when a command failed: 1 (mapped) or its own (remote)")
	c.completeFlag(cmd, "exit", fixed(exitMapped, exitRemote))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if word != exitMapped && word != exitRemote {
			return invalid("exit", "must be %s or %s", exitMapped, exitRemote)
		}
		c.remote = word == exitRemote
		return nil
	}
}

// bindRaw adds the flag that lets remote output do to the terminal what it likes.
func (c *cli) bindRaw(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.raw, "raw", false, "print a command's output unchanged, even on a terminal, where it can move the cursor and more")
}
