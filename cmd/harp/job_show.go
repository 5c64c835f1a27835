package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/harpcaller/harp"
)

func (c *cli) showJob(ctx context.Context, job *harp.Job) error {
	s, err := job.Status(ctx)
	if err != nil {
		return err
	}
	if c.format == formatJSON {
		return c.printNoun(s)
	}
	c.pairs([][2]string{
		{"id", s.ID},
		{"host", s.Host},
		{"batch", s.Batch},
		{"procedure", s.Procedure},
		{"args", valueText(s.Args)},
		{stateColumn, stateText(s)},
		{"since", c.sinceText(s)},
		{"held by", c.holdsText(s)},
		{"outlive KILL", survivorsText(s)},
		{"error", errorText(s)},
		{"started", string(s.Started)},
		{"queue", queueText(s)},
		{"submitted", c.clock(s.SubmitTime)},
		{"began", c.clock(s.StartTime)},
		{"ended", c.clock(s.EndTime)},
		{"duration", took(s, time.Now())},
		{"silence timeout", durationText(s.SilenceTimeout)},
		{"max exec time", durationText(s.MaxExecTime)},
		{"attempt", numberText(s.Attempt)},
		{"retry of", s.RetryOf},
		{"late", lateText(s)},
		{"records", strconv.FormatUint(s.Records, 10)},
		{"dry run", yes(s.DryRun)},
		{"labels", labelText(s.Labels)},
		{"info", valueText(s.Info)},
		{"by", strings.TrimSpace(s.Principal.Kind + " " + s.Principal.Name)},
		{"cancelled by", c.cancelText(s)},
	})
	if s.DuplicatePossible {
		c.say("")
		c.say("An attempt was lost with its agent's journal and another followed: it may have run more than once.")
	}
	c.showAttempts(s)
	return nil
}

// showAttempts prints a job's attempts if there is more to say of them than the job
// itself does.
func (c *cli) showAttempts(s harp.JobStatus) {
	if len(s.Attempts) < 2 && (s.State.Ended() || len(s.Attempts) == 0 || s.Attempts[0].Outcome == "") {
		return
	}
	rows := make([][]string, len(s.Attempts))
	for i, a := range s.Attempts {
		outcome := a.Outcome
		if a.Reason != "" {
			outcome += " (" + a.Reason + ")"
		}
		rows[i] = []string{strconv.Itoa(a.Number), c.clock(a.Sent), c.clock(a.Started), c.clock(a.Ended), outcome, strconv.FormatUint(a.Base, 10)}
	}
	c.say("")
	c.table([]string{"attempt", "sent", "began", "ended", "outcome", "from record"}, rows)
}

// sinceText is since when a job is in a state in which it should not stay.
func (c *cli) sinceText(s harp.JobStatus) string {
	if s.State.Ended() {
		return ""
	}
	return c.clock(s.Since)
}

// holdsText are the maintenance windows that keep a job from starting, and until when, or that its host is
// paused.
func (c *cli) holdsText(s harp.JobStatus) string {
	var holds []string
	for _, o := range s.Obstacles {
		if o.Reason == harp.ReasonWindow {
			holds = append(holds, c.windowText(o))
		}
	}
	return strings.Join(holds, "; ")
}

// lateText is what the agent said of a job after it was lost, with what its procedure
// returned.
func lateText(s harp.JobStatus) string {
	if s.Late == nil {
		return ""
	}
	text := string(s.Late.State)
	if value := valueText(s.Late.Value); value != "" {
		text += ", returned " + value
	}
	if s.Late.Err != nil {
		text += ": " + strings.TrimPrefix(s.Late.Err.Error(), "harp: ")
	}
	return text
}

// unreachable is people's word for a job that expired while its host was away.
const unreachable = "unreachable"

// stateText is a job's state in the words of people: an expired job whose host was
// away is unreachable.
func stateText(s harp.JobStatus) string {
	switch {
	case s.State == harp.StateExpired && s.Reason == harp.ReasonOffline:
		return unreachable
	case s.State == harp.StateUnknown && s.UnknownOf != "":
		return fmt.Sprintf("unknown (was %s)", s.UnknownOf)
	case s.Reason != "":
		return fmt.Sprintf("%s (%s)", s.State, s.Reason)
	}
	return string(s.State)
}

// survivorsText are the processes, by their numbers on the host, that keep a job from ending.
func survivorsText(s harp.JobStatus) string {
	return strings.Trim(fmt.Sprint(s.Survivors), "[]")
}

func errorText(s harp.JobStatus) string {
	if s.Err == nil {
		return ""
	}
	return strings.TrimPrefix(s.Err.Error(), "harp: ")
}

func queueText(s harp.JobStatus) string {
	text := valueText(s.Queue)
	if text != "" && s.QueuePos > 0 {
		text += ", place " + strconv.Itoa(s.QueuePos)
	}
	return text
}

func (c *cli) cancelText(s harp.JobStatus) string {
	if s.CancelRequested == nil {
		return ""
	}
	by := s.CancelRequested.By
	text := strings.TrimSpace(by.Kind+" "+by.Name) + " " + c.atText(s.CancelRequested.Time)
	if s.CancelRequested.Now {
		text += ", without a grace"
	}
	return text
}

func durationText(d time.Duration) string {
	l := limit(d)
	return l.String()
}

func numberText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
