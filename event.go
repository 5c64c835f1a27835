package harp

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
)

// Events yields what happens, from EventFilter.After on: what that has been and then
// what comes, until ctx ends. It goes on through lost connections and restarts of the
// dispatcher, without gap or repeat; in another process it goes on where this one
// ended when After is the Cursor of the last event that it yielded. An error is the
// last thing it yields. Errors: ErrInvalid (after, types), ErrPruned when what comes
// after the cursor is not kept any more, ErrClosed, ctx's.
func (c *Caller) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	f.Types = slices.Clone(f.Types)
	return func(yield func(Event, error) bool) {
		f := f
		for {
			page, err := c.EventsPage(ctx, f, true)
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			f.After = page.Cursor
		}
	}
}

// EventsPage is a part of what Events yields, for programs that page themselves: it
// goes on with EventFilter.After as EventPage.Cursor says. With wait it is answered
// when there is an event, through lost connections as Events. A page may be empty
// while its Cursor has moved. Errors: as Events, and without wait ErrUnavailable.
func (c *Caller) EventsPage(ctx context.Context, f EventFilter, wait bool) (EventPage, error) {
	f.Types = slices.Clone(f.Types)
	return c.service.Events(ctx, f, wait)
}

// Event is one entry of the dispatcher's feed: something that happened, written in
// the commit that made it so. Events are numbered without gaps in the order of their
// commits.
type Event struct {
	Cursor       string            `json:"cursor" msgpack:"cursor"`                          // where the feed goes on after it: EventFilter.After
	Time         time.Time         `json:"time" msgpack:"time"`                              // the dispatcher's clock, UTC
	Type         EventType         `json:"type" msgpack:"type"`                              // what happened
	Job          string            `json:"job,omitempty" msgpack:"job,omitempty"`            // its id; "": not about a job
	Host         string            `json:"host,omitempty" msgpack:"host,omitempty"`          // "": not about a host
	Procedure    string            `json:"procedure,omitempty" msgpack:"proc,omitempty"`     // of the job
	Queue        Value             `json:"queue,omitzero" msgpack:"queue,omitempty"`         // of the job, or what it is about; nil: none
	State        State             `json:"state,omitempty" msgpack:"state,omitempty"`        // of the job, after it
	Reason       string            `json:"reason,omitempty" msgpack:"reason,omitempty"`      // of the state, or why
	Attempt      int               `json:"attempt,omitempty" msgpack:"attempt,omitempty"`    // of the job; 0: none
	By           Principal         `json:"by,omitzero" msgpack:"by"`                         // who asked for it, if somebody did
	Labels       map[string]string `json:"labels,omitempty" msgpack:"labels,omitempty"`      // of the job
	Batch        string            `json:"batch,omitempty" msgpack:"batch,omitempty"`        // that it is about, or of the job
	Schedule     string            `json:"schedule,omitempty" msgpack:"sched,omitempty"`     // that it is about, or whose run the batch is
	Window       string            `json:"window,omitempty" msgpack:"window,omitempty"`      // that it is about
	Notification string            `json:"notification,omitempty" msgpack:"notif,omitempty"` // that it is about
	Until        time.Time         `json:"until,omitzero" msgpack:"until,omitempty"`         // of a pause: when it ends by itself
	Counts       map[State]int     `json:"counts,omitempty" msgpack:"counts,omitempty"`      // of a batch that has ended: how many members did in each state, those of hosts that were not reached too
}

// EventType names what happened. More may be added.
type EventType string

// The types of events. Those of jobs are "job." and the state that the job came
// into, but for these.
const (
	EventJobSubmitted       EventType = "job.submitted"
	EventJobQueued          EventType = "job.queued" // goes back to wait: not started, or another attempt follows
	EventJobSent            EventType = "job.sent"
	EventJobRunning         EventType = "job.running"
	EventJobCancelRequested EventType = "job.cancel_requested"
	EventJobCancelling      EventType = "job.cancelling"
	EventJobUnknown         EventType = "job.unknown"
	EventJobSucceeded       EventType = "job.succeeded"
	EventJobFailed          EventType = "job.failed"
	EventJobTimedOut        EventType = "job.timed_out"
	EventJobCancelled       EventType = "job.cancelled"
	EventJobExpired         EventType = "job.expired"
	EventJobRejected        EventType = "job.rejected"
	EventJobLost            EventType = "job.lost"
	EventJobLate            EventType = "job.late"      // an outcome arrived for a job that had ended as lost
	EventJobSurvivors       EventType = "job.survivors" // processes of it outlive KILL; Reason has their numbers on its host
	EventJobPruned          EventType = "jobs.pruned"   // retention deleted jobs; Reason says how many

	EventHostOnline       EventType = "host.online"
	EventHostAway         EventType = "host.away"
	EventHostDuplicate    EventType = "host.duplicate"    // a second agent of this name was refused
	EventHostJournal      EventType = "host.journal_gone" // its agent lost what it knew of its attempts
	EventHostForgot       EventType = "host.forgot"       // the agent held an attempt that is not known here, or was lost on another host; Job names it
	EventHostLabelled     EventType = "host.labelled"     // an operator changed its labels; Reason says how
	EventHostRemoved      EventType = "host.removed"      // by an operator
	EventHostPaused       EventType = "host.paused"       // nothing starts on it; Reason says why
	EventHostUnpaused     EventType = "host.unpaused"     // without By: its pause has ended by itself
	EventHostDrift        EventType = "host.drift"        // a check, Job, has found it otherwise than before; Reason is "NAME: MARK"
	EventQueuePaused      EventType = "queue.paused"      // Reason says why
	EventQueueUnpaused    EventType = "queue.unpaused"    // without By: its pause has ended by itself
	EventQueueChanged     EventType = "queue.changed"     // its concurrency
	EventQueueCancelled   EventType = "queue.cancelled"
	EventWindowChanged    EventType = "window.changed" // made, changed or ended; Reason is the window's, or says what is new of its calendar
	EventWindowOpened     EventType = "window.opened"  // Until is its end, if one is known
	EventWindowClosed     EventType = "window.closed"
	EventWindowStale      EventType = "window.stale" // its calendar could not be fetched for a day; Reason says why. What was fetched last stays in force
	EventWindowDeleted    EventType = "window.deleted"
	EventGroupChanged     EventType = "group.changed"     // made, changed or deleted; Reason is its name
	EventRetentionChanged EventType = "retention.changed" // a rule was made, changed or deleted; Reason is its name

	EventBatchSubmitted       EventType = "batch.submitted" // it tells of its members, too
	EventBatchWave            EventType = "batch.wave"      // the next wave has begun: Reason says which
	EventBatchPaused          EventType = "batch.paused"
	EventBatchResumed         EventType = "batch.resumed"
	EventBatchCancelRequested EventType = "batch.cancel_requested"
	EventBatchSucceeded       EventType = "batch.succeeded"
	EventBatchFailed          EventType = "batch.failed"
	EventBatchCancelled       EventType = "batch.cancelled"
	EventChainStep            EventType = "chain.step" // the next step has begun on a host: Job is its, Reason says which

	EventScheduleFired    EventType = "schedule.fired"   // Batch is the run
	EventScheduleSkipped  EventType = "schedule.skipped" // Reason says why, as for missed and failed
	EventScheduleMissed   EventType = "schedule.missed"
	EventScheduleFailed   EventType = "schedule.failed"
	EventScheduleLate     EventType = "schedule.late" // a run, Batch, takes longer than was expected
	EventSchedulePaused   EventType = "schedule.paused"
	EventScheduleUnpaused EventType = "schedule.unpaused" // without By: its pause has ended by itself
	EventScheduleChanged  EventType = "schedule.changed"  // made or changed
	EventScheduleDeleted  EventType = "schedule.deleted"

	EventNotificationFailed   EventType = "notification.failed"    // a message was given up; Reason says which and why
	EventNotificationBehind   EventType = "notification.behind"    // so many messages wait that what happens is looked at later
	EventNotificationCaughtUp EventType = "notification.caught_up" // it is not behind any more
	EventNotificationGap      EventType = "notification.gap"       // events or messages were lost; Reason says how many, and why
	EventNotificationPaused   EventType = "notification.paused"    // Reason says why; without By: its receiver wants no more messages
	EventNotificationUnpaused EventType = "notification.unpaused"
	EventNotificationChanged  EventType = "notification.changed" // made or changed
	EventNotificationDeleted  EventType = "notification.deleted"

	EventDocumentsApplied EventType = "documents.applied" // Reason says whose they are, and how many things were made, changed and deleted
	EventDocumentsRefused EventType = "documents.refused" // those of the dispatcher's folder; Reason says what is wrong

	// EventsMissing stands for events that cannot be read, as the dispatcher's disk has
	// damaged them: Reason says how many. When they happened is not known: Time is zero. It
	// is told whatever was selected.
	EventsMissing EventType = "events.missing"
)

// EventTypes returns all types of events.
func EventTypes() []EventType {
	return []EventType{
		EventJobSubmitted, EventJobQueued, EventJobSent, EventJobRunning, EventJobCancelRequested, EventJobCancelling, EventJobUnknown, EventJobSucceeded, EventJobFailed, EventJobTimedOut, EventJobCancelled, EventJobExpired, EventJobRejected, EventJobLost, EventJobLate, EventJobSurvivors, EventJobPruned,
		EventHostOnline, EventHostAway, EventHostDuplicate, EventHostJournal, EventHostForgot, EventHostLabelled, EventHostRemoved, EventHostPaused, EventHostUnpaused, EventHostDrift,
		EventQueuePaused, EventQueueUnpaused, EventQueueChanged, EventQueueCancelled,
		EventWindowChanged, EventWindowOpened, EventWindowClosed, EventWindowStale, EventWindowDeleted,
		EventGroupChanged,
		EventRetentionChanged,
		EventBatchSubmitted, EventBatchWave, EventBatchPaused, EventBatchResumed, EventBatchCancelRequested, EventBatchSucceeded, EventBatchFailed, EventBatchCancelled,
		EventChainStep,
		EventScheduleFired, EventScheduleSkipped, EventScheduleMissed, EventScheduleFailed, EventScheduleLate, EventSchedulePaused, EventScheduleUnpaused, EventScheduleChanged, EventScheduleDeleted,
		EventNotificationFailed, EventNotificationBehind, EventNotificationCaughtUp, EventNotificationGap, EventNotificationPaused, EventNotificationUnpaused, EventNotificationChanged, EventNotificationDeleted,
		EventDocumentsApplied, EventDocumentsRefused,
		EventsMissing,
	}
}

// CheckEventType refuses what selects no type of event: it is neither one nor, with * behind it, the
// beginning of one. The dispatcher checks what it is asked for, since it may know more types than its
// callers. Errors: a *FieldError that names field.
func CheckEventType(field, pattern string) error {
	begin, isPattern := strings.CutSuffix(pattern, "*")
	for _, t := range EventTypes() {
		if string(t) == pattern || isPattern && strings.HasPrefix(string(t), begin) {
			return nil
		}
	}
	return &FieldError{Field: field, Message: fmt.Sprintf("%q is not a type of event", pattern)}
}

// Where a feed can be read from, for EventFilter.After.
const (
	EventsFromNow   = ""      // what happens from now on
	EventsFromStart = "start" // everything that is kept
)

// EventFilter selects events; a zero field selects all.
type EventFilter struct {
	After string   `msgpack:"after,omitempty"` // a Cursor, EventsFromNow or EventsFromStart
	Types []string `msgpack:"types,omitempty"` // each a type, or the beginning of one and *: "job.*"
	Job   string   `msgpack:"job,omitempty"`
	Host  string   `msgpack:"host,omitempty"`
	Batch string   `msgpack:"batch,omitempty"` // that it is about, or whose member it is about
	// Since leaves out what happened before it. There is no index: what comes behind After is
	// looked at, from EventsFromStart on all that is kept.
	Since time.Time `msgpack:"since,omitempty"`
}

// EventPage is a part of the feed.
type EventPage struct {
	Events []Event
	Cursor string // where to go on, also when there are no events
}
