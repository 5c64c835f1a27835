package wire

import (
	"time"

	"github.com/harpcaller/harp"
)

// SchedulesQuery asks for schedules; with a Name for that one.
type SchedulesQuery struct {
	Page
	Name string `msgpack:"name,omitempty"`
}

// Schedules answers SchedulesQuery.
type Schedules struct {
	Schedules Rows   `msgpack:"schedules,omitempty"` // of harp.ScheduleStatus
	Cursor    string `msgpack:"cursor,omitempty"`
}

// PutSchedule makes a schedule or replaces the one of its name.
type PutSchedule struct {
	Request  string        `msgpack:"id"` // the same when it is asked again
	Schedule harp.Schedule `msgpack:"schedule"`
}

// DeleteSchedule deletes a schedule.
type DeleteSchedule struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}

// ChangeSchedule pauses or unpauses a schedule, or skips a time of it.
type ChangeSchedule struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
	harp.ScheduleChange
}

// Trigger runs a schedule now, as the batch of this id. Submitted answers it.
type Trigger struct {
	Batch string `msgpack:"id"`
	Name  string `msgpack:"name"`
	harp.Trigger
}

// Backfill runs a schedule for times that did not fire.
type Backfill struct {
	Request string    `msgpack:"id"` // the same when it is asked again
	Name    string    `msgpack:"name"`
	From    time.Time `msgpack:"from"`
	To      time.Time `msgpack:"to"`
}

// NextTimes asks for at most so many times of a schedule after one; zero: from now on.
type NextTimes struct {
	Name string    `msgpack:"name"`
	From time.Time `msgpack:"from,omitempty"`
	Most int       `msgpack:"n"`
}

// Upcoming answers NextTimes.
type Upcoming struct {
	Times Rows `msgpack:"times,omitempty"` // of harp.Upcoming
}

// LedgerQuery asks for what became of times, newest first.
type LedgerQuery struct {
	Page
	harp.LedgerFilter
}

// Ledger answers LedgerQuery; also when short, there is more while Cursor is set.
type Ledger struct {
	Entries Rows   `msgpack:"entries,omitempty"` // of harp.LedgerEntry
	Cursor  string `msgpack:"cursor,omitempty"`
}
