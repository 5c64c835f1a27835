package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/target"
)

func (c *cli) runOnTargetCommand() *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use:   "run TARGET PROCEDURE [NAME=VALUE | NAME:=JSON | @FILE | -]...",
		Short: "Call a procedure on all hosts that a target selects",
		Long: `Call a procedure on all hosts that a target selects, as a batch: its hosts are fixed when
it is submitted, each call is a job, and it goes on when nobody waits for it. TARGET --
COMMAND... runs a command where agents allow the procedure exec. TARGET --steps FILE calls
several procedures on each host, one after the other.

It first says what it will do. With more than one host, or a procedure marked dangerous, it
asks on a terminal, and needs -y without one. If the target selects other hosts by the time
of the answer, the batch is refused.

Results go to stdout; with more than 5 hosts, equal ones are printed once. Failures and
progress go to stderr. Ctrl-C stops waiting, not the batch. The exit code is that of the
worst outcome. See harp help batches and harp help targets.`,
		Example: `  harp run 'role=web' service.restart service=nginx --rolling 1,10%,100% --stop-after 5%
  harp run 'db[01-20]' backup -y -d --parallel 2
  harp run @frontend -y -o jsonl -- uptime
  harp run 'role=db' --steps upgrade.yaml --rolling 1,10%`,
		Args: func(cmd *cobra.Command, args []string) error {
			f.dash = cmd.ArgsLenAtDash()
			if f.stepsFile != "" {
				return cobra.ExactArgs(f.leadingWords())(cmd, args)
			}
			return cobra.MinimumNArgs(f.leadingWords()+1)(cmd, args)
		},
		Annotations: runs(),
		RunE: c.does(func(ctx context.Context, args []string) error {
			text, err := f.targetText(c, args)
			if err != nil {
				return err
			}
			return c.withCaller(ctx, func(caller *harp.Caller) error {
				return c.callTarget(ctx, caller, &f, text, args[f.leadingWords():])
			})
		}),
		ValidArgsFunction: c.completeRest(c.asksWords(targetArgumentWords), listed(c.asksWords(targetWords)), c.asksWords(procedureWords)),
	}
	c.bindBatch(cmd, &f)
	flags := cmd.Flags()
	flags.StringVar(&f.hostsFile, "hosts-file", "", "call the hosts named in this `file`, one per line, instead of TARGET; - is stdin")
	f.bindSteps(flags)
	f.bindWatching(flags)
	c.bindExit(cmd, exitMapped)
	return cmd
}

// batchFlags are the options of a batch as flags, with those of its calls.
type batchFlags struct {
	callFlags
	options           harp.BatchOptions
	rate              hostRate
	wavePause         limit
	onStop, whenUnfit string
	whenHeld          string
	hostsFile         string
	stepsFile         string
	steps             []harp.Step         // of a chain
	stepDocs          []harp.ProcedureDoc // their procedures
	rebootWait        limit
	noFold, follow    bool
	dash              int // how many words stand before --; -1: there is none
}

// bindWatching adds the flags that say what of a batch is shown while it is waited for.
func (f *batchFlags) bindWatching(flags *pflag.FlagSet) {
	flags.BoolVar(&f.noFold, "no-fold", false, "print the result of each host as it ends, even if equal")
	flags.BoolVar(&f.follow, "follow", false, "also print the records of all hosts as they arrive")
}

// bindBatch adds the flags of a batch and of its calls.
func (c *cli) bindBatch(cmd *cobra.Command, f *batchFlags) {
	f.several = true
	c.bindCall(cmd, &f.callFlags)
	c.bindBatchOptions(cmd, f)
	f.describeCall()
	flags := cmd.Flags()
	c.bindOnStop(cmd, f, "`action` when --stop-after is reached: pause the batch, the default, or cancel it")
	flags.BoolVar(&f.options.Probe, "ping", false, "ping the hosts first; those that do not answer count as away")
}

// bindOnStop adds the flag that says what --stop-after does.
func (c *cli) bindOnStop(cmd *cobra.Command, f *batchFlags, usage string) {
	cmd.Flags().StringVar(&f.onStop, "on-stop", "", usage)
	c.completeFlag(cmd, "on-stop", fixed("pause", "cancel"))
}

// bindBatchOptions adds the flags of a batch that may be made many times.
func (c *cli) bindBatchOptions(cmd *cobra.Command, f *batchFlags) {
	o, flags := &f.options, cmd.Flags()
	flags.IntVar(&o.Parallel, "parallel", 0, "`count` of hosts at a time, at most (default 1000, or the dispatcher's limits.batch_parallel)")
	flags.StringSliceVar(&o.Rolling, "rolling", nil, "go in `waves`: how many hosts, or what percentage, have been called by the end of each (1,10%,100%)")
	flags.Var(&f.wavePause, "wave-pause", "pause between two waves")
	flags.BoolVar(&o.Approve, "approve", false, "after each wave, wait for approval; on a terminal it asks")
	flags.BoolVar(&o.ApproveFirst, "approve-first", false, "fix the hosts, but begin only when the batch is resumed; cancelling it refuses it")
	flags.StringVar(&o.Subset, "subset", "", "only this `part` of the hosts, chosen at random: a number or a percentage (10, 10%)")
	flags.BoolVar(&o.Shuffle, "shuffle", false, "call the hosts in a random order, not by name")
	flags.Var(&f.rate, "rate", "`rate` at which hosts are called, at most (50/s, 10/1m)")
	flags.StringVar(&o.StopAfter, "stop-after", "", "start nothing more once this `part` of the hosts has failed: a number or a percentage (5, 5%)")
	flags.IntVar(&o.MaxHosts, "max-hosts", 0, "refuse the batch if it has more hosts than this `count`")
	flags.StringVar(&f.whenUnfit, "when-unfit", "refuse", "`policy` if a host lacks the procedure or its arguments do not fit: refuse the batch, or skip the host")
	flags.StringVar(&f.whenHeld, "when-held", "wait", "`policy` for a host under maintenance when its turn comes: wait for the end, or skip the host")
	flags.BoolVar(&o.QueuePerHost, "queue-per-host", false, "a queue per host: the queue's name with host=HOST added")
	flags.StringVar(&o.Drift, "drift", "", "with --dry-run: mark each host under this `name` as its dry run finds it, clean or dirty")
	c.completeFlag(cmd, "drift", c.asksWords(driftWords))
	c.completeFlag(cmd, "when-unfit", fixed("refuse", "skip"))
	c.completeFlag(cmd, "when-held", fixed("wait", "skip"))
}

// describeCall says of the flags of a call what they mean for a batch.
func (f *callFlags) describeCall() {
	for name, usage := range map[string]string{
		"yes":                 "do not ask",
		"detach":              "print the batch's id and do not wait",
		"cancel-on-interrupt": "Ctrl-C cancels the batch",
		"id":                  "the batch's `id`, chosen beforehand (harp id makes one); submitting again with it is the same batch. new: make one and print it before sending",
		"when-offline":        "`policy` for hosts that are away when their turn comes: wait for them, skip them, or fail at once",
		"idempotency-key":     "submitting again with this `key` is the same batch",
		"info":                "your own data for the jobs: `JSON`, or a text",
		"label":               "a label for the batch and its jobs: `key=value` (repeatable)",
	} {
		if flag := f.set.Lookup(name); flag != nil {
			flag.Usage = usage
		}
	}
}

// hostRate is how often hosts are reached: 50/s.
type hostRate struct {
	n   int
	per time.Duration
}

// String returns the flag's value.
func (r *hostRate) String() string {
	if r.n == 0 {
		return ""
	}
	return strconv.Itoa(r.n) + "/" + durationText(r.per)
}

// Set reads the flag.
func (r *hostRate) Set(text string) error {
	digits, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 {
		return errors.New("must be a number of hosts and a time: 50/s, 10/1m")
	}
	if unit != "" && !strings.ContainsAny(unit[:1], "0123456789") {
		unit = "1" + unit
	}
	per, err := duration.Parse(unit)
	if err != nil || per <= 0 {
		return errors.New("must be a number of hosts and a time: 50/s, 10/1m")
	}
	r.n, r.per = n, per
	return nil
}

// Type names the flag's type in the help.
func (r *hostRate) Type() string { return "rate" }

// leadingWords is how many words stand before the procedure.
func (f *batchFlags) leadingWords() int {
	if f.hostsFile != "" {
		return 0
	}
	return 1
}

// targetText is the target: the first word, or a list of those hosts that a file names.
func (f *batchFlags) targetText(c *cli, args []string) (string, error) {
	if f.hostsFile == "" {
		return args[0], checkTarget(args[0])
	}
	text, err := c.readInput(f.hostsFile)
	if err != nil {
		return "", invalid("hosts-file", "%s", err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, "#") {
			names = append(names, target.QuoteName(name))
		}
	}
	if len(names) == 0 {
		return "", invalid("hosts-file", "%s has no hosts", f.hostsFile)
	}
	return strings.Join(names, ","), nil
}

// batchOptions are the options of the batch and of its calls.
func (f *batchFlags) batchOptions() ([]harp.Option, error) {
	opts, err := f.callFlags.options()
	if err != nil {
		return nil, err
	}
	o := f.options
	var ok bool
	if o.OnStop, ok = map[string]harp.StopPolicy{"": "", "pause": harp.PauseBatch, "cancel": harp.CancelBatch}[f.onStop]; !ok {
		return nil, invalid("on-stop", "must be pause or cancel")
	}
	if o.WhenUnfit, ok = map[string]harp.UnfitPolicy{"refuse": harp.RefuseUnfit, "skip": harp.SkipHost}[f.whenUnfit]; !ok {
		return nil, invalid("when-unfit", "must be refuse or skip")
	}
	if o.WhenHeld, ok = map[string]harp.HeldPolicy{"wait": harp.WaitForHeld, "skip": harp.SkipHost}[f.whenHeld]; !ok {
		return nil, invalid("when-held", "must be wait or skip")
	}
	opts = append(opts, harp.Options(harp.CallOptions{Batch: o}))
	for name, opt := range map[string]harp.Option{ // a zero that was given is refused, or goes over what a batch that is made again has
		"parallel":    harp.Parallel(o.Parallel),
		"rolling":     harp.Rolling(o.Rolling...),
		"wave-pause":  harp.WavePause(time.Duration(f.wavePause)),
		"subset":      harp.Subset(o.Subset),
		"rate":        harp.Rate(f.rate.n, f.rate.per),
		"stop-after":  harp.StopAfter(o.StopAfter),
		"max-hosts":   harp.MaxHosts(o.MaxHosts),
		"drift":       harp.Drift(o.Drift),
		"reboot-wait": harp.RebootWait(time.Duration(f.rebootWait)),
		"when-unfit":  harp.WhenUnfit(o.WhenUnfit),
		"when-held":   harp.WhenHeld(o.WhenHeld),

		"approve":        func(to *harp.CallOptions) { to.Batch.Approve = o.Approve },
		"approve-first":  func(to *harp.CallOptions) { to.Batch.ApproveFirst = o.ApproveFirst },
		"shuffle":        func(to *harp.CallOptions) { to.Batch.Shuffle = o.Shuffle },
		"ping":           func(to *harp.CallOptions) { to.Batch.Probe = o.Probe },
		"each-step":      func(to *harp.CallOptions) { to.Batch.EachStep = o.EachStep },
		"queue-per-host": func(to *harp.CallOptions) { to.Batch.QueuePerHost = o.QueuePerHost },
	} {
		if f.set.Changed(name) {
			opts = append(opts, opt)
		}
	}
	return opts, nil
}

// noHosts is the digest of no preview: what is confirmed by it is found if it was submitted before, and is refused else, though the target
// may select hosts by then.
const noHosts = "0"

// callTarget calls a procedure, or runs a command, on the hosts of a target and, unless detached,
// waits for the end of the batch.
func (c *cli) callTarget(ctx context.Context, caller *harp.Caller, f *batchFlags, text string, words []string) error {
	if f.options.Drift != "" && !f.dryRun { // before anybody is asked
		return invalid("drift", "needs --dry-run")
	}
	opts, err := f.batchOptions()
	if err != nil {
		return err
	}
	if f.options.Drift != "" {
		opts = append(opts, harp.DryRun())
	}
	doc, args, err := c.targetArguments(ctx, caller, f, text, words)
	if err != nil {
		return err
	}
	if err := f.checkConcurrency(ctx, caller); err != nil {
		return err
	}
	hosts := caller.Target(text, opts...)
	call := func(opts ...harp.Option) (*harp.Batch, error) { return hosts.Call(ctx, doc.Name, args, opts...) }
	if len(f.steps) > 0 {
		call = func(opts ...harp.Option) (*harp.Batch, error) { return hosts.Chain(ctx, f.steps, opts...) }
	}
	seen, err := previewOf(ctx, hosts, f, doc.Name, args)
	if selectsNone(err) && f.mayExist() && !f.dryRun {
		batch, asked := call(harp.Confirmed(noHosts))
		if asked == nil {
			return c.batchMade(ctx, batch, f, "batch "+batch.ID())
		}
		if !selectsNone(asked) {
			return didNotRun(asked)
		}
	}
	if err != nil {
		return noHost(ctx, caller, err, text)
	}
	p := &batchPlan{flags: f, doc: doc, args: args, target: text, preview: seen}
	if err := p.count(); err != nil && (f.dryRun || !f.mayExist()) {
		return err
	}
	if p.why != nil && (!f.dryRun || f.options.Drift != "") && !f.mayExist() { // a check is no rehearsal
		return didNotRun(p.why)
	}
	if f.dryRun {
		return c.rehearseBatch(ctx, p, func(dry harp.Option) (*harp.Batch, error) { return call(dry) })
	}
	confirmed, err := c.confirmBatch(ctx, p)
	if err != nil {
		return err
	}
	c.sayNewID(&f.callFlags)
	batch, err := call(confirmed...)
	if err != nil {
		return didNotRun(err)
	}
	return c.batchMade(ctx, batch, f, "batch "+batch.ID())
}

// targetArguments finds out which procedure is called, and with which arguments.
func (c *cli) targetArguments(ctx context.Context, caller *harp.Caller, f *batchFlags, text string, words []string) (harp.ProcedureDoc, any, error) {
	if f.stepsFile != "" {
		return c.readSteps(ctx, caller, f, text)
	}
	if f.dash < 0 || f.dash > f.leadingWords() {
		doc, err := f.findCalledOnTarget(ctx, caller, text, words[0])
		if err != nil {
			return doc, nil, err
		}
		args, err := c.callArguments(ctx, caller, &f.callFlags, doc, words[1:])
		return doc, args, err
	}
	f.onlyOutput = true
	doc, err := f.findCalledOnTarget(ctx, caller, text, execProcedure)
	if harp.FailureOf(err).Type == "procedure" {
		err = failures.NotFound("procedure", execProcedure+" on "+shortTarget(text)+": no agent's configuration allows it")
	}
	if err != nil {
		return doc, nil, err
	}
	args, err := commandArguments(doc, map[string]any{"argv": words})
	return doc, args, err
}

// findOnTarget finds a procedure as the first host of a target offers it that does. The dispatcher
// judges the arguments by the procedure of each host.
func findOnTarget(ctx context.Context, caller *harp.Caller, text, name string) (harp.ProcedureDoc, error) {
	known := map[string]bool{}
	for h, err := range caller.Hosts().List(ctx, text) {
		if err != nil {
			return harp.ProcedureDoc{}, noHost(ctx, caller, err, text)
		}
		if slices.Contains(h.Procedures, name) {
			return findProcedure(ctx, caller, h.Name, name)
		}
		for _, other := range h.Procedures {
			known[other] = true
		}
	}
	return harp.ProcedureDoc{}, noProcedure(name, text, slices.Sorted(maps.Keys(known)))
}
