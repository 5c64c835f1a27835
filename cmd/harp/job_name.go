package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
)

// newest is how many jobs, or batches, a part of an id is looked for in.
const newest = 1000

// idNames makes ids of what the user wrote.
type idNames struct {
	noun, nouns string                                         // job, or batch
	check       func(id string) error                          // whether it is one
	ids         func(context.Context) iter.Seq2[string, error] // of all, newest first
	newest      []string                                       // ids of the newest, once they were asked for
	asked       bool
}

func jobNames(caller *harp.Caller) *idNames {
	return &idNames{noun: "job", nouns: "jobs", check: harp.CheckJobID, ids: func(ctx context.Context) iter.Seq2[string, error] {
		return idsOf(caller.Jobs(ctx, harp.JobFilter{}), func(s harp.JobStatus) string { return s.ID })
	}}
}

func batchNames(caller *harp.Caller) *idNames {
	return &idNames{noun: "batch", nouns: "batches", check: harp.CheckID, ids: func(ctx context.Context) iter.Seq2[string, error] {
		return idsOf(caller.Batches(ctx, harp.BatchFilter{}), func(s harp.BatchStatus) string { return s.ID })
	}}
}

func idsOf[T any](all iter.Seq2[T, error], id func(T) string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for item, err := range all {
			if !yield(id(item), err) {
				return
			}
		}
	}
}

// asksJob is asks for the job that the first argument names.
func (c *cli) asksJob(fn func(ctx context.Context, job *harp.Job) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		id, err := c.jobID(ctx, caller, args[0])
		if err != nil {
			return err
		}
		return fn(ctx, caller.Job(id))
	})
}

// asksJobs is asks for all the jobs that the arguments name, each once. Nothing is done unless
// all of them are names.
func (c *cli) asksJobs(fn func(ctx context.Context, caller *harp.Caller, jobs []*harp.Job) error) func(*cobra.Command, []string) error {
	return c.asks(func(ctx context.Context, caller *harp.Caller, args []string) error {
		ids, err := c.findIDs(ctx, jobNames(caller), args)
		if err != nil {
			return err
		}
		jobs := make([]*harp.Job, len(ids))
		for i, id := range ids {
			jobs[i] = caller.Job(id)
		}
		return fn(ctx, caller, jobs)
	})
}

// eachJob does something with one job after the other. Of several, what fails is said at once and
// the others follow. Errors: fn's of one job; *saidError; *detachedError.
func (c *cli) eachJob(ctx context.Context, jobs []*harp.Job, fn func(ctx context.Context, job *harp.Job) error) error {
	if len(jobs) == 1 {
		return fn(ctx, jobs[0])
	}
	code := exitOK
	for i, job := range jobs {
		c.stdout.written = false // an error is an object of its own
		err := fn(ctx, job)
		var detached *detachedError
		if errors.As(err, &detached) {
			return detached.withMore(jobs[i+1:])
		}
		if err != nil && ctx.Err() != nil {
			return err
		}
		code = worseCode(code, c.reportError(err))
	}
	if code == exitOK {
		return nil
	}
	return &saidError{code}
}

// withMore is the error with jobs that are not waited for any more either.
func (e *detachedError) withMore(jobs []*harp.Job) error {
	if len(jobs) == 0 {
		return e
	}
	const listed = 10
	all := *e
	for _, job := range jobs {
		all.jobs = append(all.jobs, job.ID())
	}
	all.resume = "harp job ls"
	if len(all.jobs) <= listed {
		all.resume = "harp job wait " + strings.Join(all.jobs, " ")
	}
	return &all
}

// worse joins the errors of two rounds over several jobs.
func worse(first, second error) error {
	var a, b *saidError
	if errors.As(first, &a) && errors.As(second, &b) {
		return &saidError{worseCode(a.code, b.code)}
	}
	if second == nil {
		return first
	}
	return second
}

// jobID is findIDs for a command that takes one job.
func (c *cli) jobID(ctx context.Context, caller *harp.Caller, word string) (string, error) {
	return c.findID(ctx, jobNames(caller), word)
}

// findID is findIDs for a command that takes one.
func (c *cli) findID(ctx context.Context, names *idNames, word string) (string, error) {
	ids, err := c.findIDs(ctx, names, []string{word})
	if err != nil {
		return "", err
	}
	if len(ids) > 1 {
		return "", invalid("id", "stdin has %d; this command takes one", len(ids))
	}
	return ids[0], nil
}

// findIDs makes ids of what the user wrote, each once: an id, the beginning or the last characters
// of one, "last", or "-" for those on stdin.
func (c *cli) findIDs(ctx context.Context, names *idNames, words []string) ([]string, error) {
	var ids []string
	seen := map[string]bool{}
	for _, word := range words {
		all := []string{word}
		if word == "-" {
			var err error
			if all, err = c.wordsOfStdin("id"); err != nil {
				return nil, err
			}
		}
		for _, word := range all {
			id, err := names.find(ctx, word)
			if err != nil {
				return nil, err
			}
			if !seen[id] {
				ids = append(ids, id)
			}
			seen[id] = true
		}
	}
	return ids, nil
}

// wordsOfStdin are the ids, or the names, that stdin has.
func (c *cli) wordsOfStdin(what string) ([]string, error) {
	text, err := io.ReadAll(io.LimitReader(c.stdin, maxInput))
	if err != nil {
		return nil, invalid(what, "cannot be read from stdin: %v", err)
	}
	all := strings.Fields(string(text))
	if len(all) == 0 {
		return nil, invalid(what, "no %ss on stdin", what)
	}
	return all, nil
}

func (n *idNames) find(ctx context.Context, word string) (string, error) {
	switch {
	case n.check(word) == nil:
		return word, nil
	case word == "last":
		return n.last(ctx)
	case strings.Trim(word, "0123456789abcdef-") == "" && strings.Trim(word, "-") != "":
		return n.part(ctx, word)
	}
	return "", invalid("id", "%s is not a %s ID", word, n.noun)
}

func (n *idNames) last(ctx context.Context) (string, error) {
	for id, err := range n.ids(ctx) {
		return id, err
	}
	return "", failures.NotFound(n.noun, "last; there are no "+n.nouns+" yet")
}

// part finds that whose id begins, or ends, with a part of it.
func (n *idNames) part(ctx context.Context, part string) (string, error) {
	if err := n.list(ctx); err != nil {
		return "", err
	}
	var found []string
	for _, id := range n.newest {
		if strings.HasPrefix(id, part) || len(part) >= shortID && strings.HasSuffix(id, part) {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return "", failures.NotFound(n.noun, part+" (looked at the newest "+strconv.Itoa(len(n.newest))+")")
	case 1:
		return found[0], nil
	}
	return "", invalid("id", "%d %s match %s, among them %s and %s", len(found), n.nouns, part, found[0], found[1])
}

// shortID is how many of an id's last characters tell a job from others: they are random, its
// first ones are the time.
const shortID = 8

// list asks for the newest ids, once.
func (n *idNames) list(ctx context.Context) error {
	if n.asked {
		return nil
	}
	for id, err := range n.ids(ctx) {
		if err != nil {
			return err
		}
		if n.newest = append(n.newest, id); len(n.newest) == newest {
			break
		}
	}
	n.asked = true
	return nil
}
