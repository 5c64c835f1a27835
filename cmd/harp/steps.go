package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/manifest"
)

// bindSteps adds the flag that has a chain in the place of one procedure.
func (f *batchFlags) bindSteps(flags *pflag.FlagSet) {
	flags.StringVar(&f.stepsFile, "steps", "", "instead of PROCEDURE, a chain: call on each host the procedures listed in this `file`, one after the other; - is stdin")
	f.bindChain(flags)
}

// bindChain adds the flags of a chain, be it new or made again.
func (f *batchFlags) bindChain(flags *pflag.FlagSet) {
	flags.Var(&f.rebootWait, "reboot-wait", "in a chain: wait this long for the host after a step that ends with a reboot (default 30m)")
	flags.BoolVar(&f.options.EachStep, "each-step", false, "in a chain: maintenance windows hold back every step, not only the first")
}

// readSteps reads the steps of a chain, and finds out what the procedures are. It returns the first, with its arguments.
func (c *cli) readSteps(ctx context.Context, caller *harp.Caller, f *batchFlags, text string) (harp.ProcedureDoc, any, error) {
	if f.options.Drift != "" {
		return harp.ProcedureDoc{}, nil, invalid("drift", "cannot be combined with --steps")
	}
	content, err := c.readInput(f.stepsFile)
	if err != nil {
		return harp.ProcedureDoc{}, nil, invalid("steps", "%s", err)
	}
	if f.steps, err = manifest.ReadSteps(f.stepsFile, content); err != nil {
		return harp.ProcedureDoc{}, nil, err
	}
	if len(f.steps) == 0 {
		return harp.ProcedureDoc{}, nil, invalid("steps", "%s has no steps", f.stepsFile)
	}
	for _, s := range f.steps {
		doc, err := f.findCalledOnTarget(ctx, caller, text, s.Procedure)
		if err != nil {
			return doc, nil, err
		}
		f.stepDocs = append(f.stepDocs, doc)
	}
	return f.stepDocs[0], f.steps[0].Args, nil
}

// previewOf asks what the call, or chain, would meet. Errors: as harp.Target.Preview.
func previewOf(ctx context.Context, hosts *harp.Target, f *batchFlags, procedure string, args any) (harp.Preview, error) {
	if len(f.steps) > 0 {
		return hosts.PreviewChain(ctx, f.steps)
	}
	return hosts.Preview(ctx, procedure, args)
}

// called names what is called: of a chain all of it.
func (f *batchFlags) called(doc harp.ProcedureDoc) string {
	if len(f.steps) == 0 {
		return doc.Name
	}
	names := make([]string, len(f.steps))
	for n, s := range f.steps {
		names[n] = s.Procedure
	}
	return strings.Join(names, ", ")
}

// dangerous names the procedure that is marked so; of a chain the first.
func (f *batchFlags) dangerous(doc harp.ProcedureDoc) string {
	for _, d := range f.stepDocs {
		if slices.Contains(d.Traits, harp.TraitDangerous) {
			return d.Name
		}
	}
	return doc.Name
}

// hideSteps takes what is secret out of the arguments of further steps.
func (f *batchFlags) hideSteps(then []harp.ChainStep) (shown []harp.ChainStep, err error) {
	for n, s := range then {
		if s.Args, err = withoutSecrets(f.stepDocs[n+1], s.Args); err != nil {
			return nil, err
		}
		shown = append(shown, s)
	}
	return shown, nil
}

// shownChains is of how many hosts of a chain the steps are shown with it.
const shownChains = 50

// printSteps prints how far each host of a chain is.
func (c *cli) printSteps(ctx context.Context, caller *harp.Caller, s harp.BatchStatus) error {
	header := append([]string{"host"}, s.Steps...)
	var rows [][]string
	for job, err := range caller.Jobs(ctx, harp.JobFilter{Batch: s.ID}) {
		if err != nil {
			return err
		}
		if job.Step == 1 {
			if len(rows) == shownChains {
				break
			}
			rows = append(rows, []string{job.Host})
		}
		if n := len(rows); n > 0 {
			rows[n-1] = append(rows[n-1], stateText(job))
		}
	}
	c.say("")
	c.table(header, rows)
	if more := s.Hosts - len(rows); more > 0 {
		c.notice("%s more: harp batch hosts %s", hostCount(more), s.ID)
	}
	return nil
}

// stepText names the step of a job; "" if it is of no chain.
func stepText(j harp.JobStatus) string {
	if j.Step == 0 {
		return ""
	}
	return strconv.Itoa(j.Step) + " " + j.Procedure
}

// atStep says in which step a host of a chain ended; "" of another batch.
func atStep(step int) string {
	if step == 0 {
		return ""
	}
	return fmt.Sprintf("step %d: ", step)
}
