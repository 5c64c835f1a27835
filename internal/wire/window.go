package wire

import (
	"time"

	"github.com/harpcaller/harp"
)

// WindowsQuery asks for maintenance windows; with a Name for that one, and the content of its calendar.
type WindowsQuery struct {
	Page
	Name string `msgpack:"name,omitempty"`
}

// Windows answers WindowsQuery.
type Windows struct {
	Windows Rows   `msgpack:"windows,omitempty"` // of harp.WindowStatus
	Cursor  string `msgpack:"cursor,omitempty"`
}

// PutWindow makes a window or replaces the one of its name.
type PutWindow struct {
	Request string      `msgpack:"id"` // the same when it is asked again
	Window  harp.Window `msgpack:"window"`
}

// WindowRef names a window: the body of DeleteWindow and EndWindow.
type WindowRef struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Name    string `msgpack:"name"`
}

// WindowSpans asks when a window is, or would be if it is given whole, in place of its name. Nothing is stored.
type WindowSpans struct {
	Name   string       `msgpack:"name,omitempty"`
	From   time.Time    `msgpack:"from"`
	To     time.Time    `msgpack:"to"`
	Window *harp.Window `msgpack:"window,omitempty"`
}

// Spans answers WindowSpans.
type Spans struct {
	Spans Rows `msgpack:"spans,omitempty"` // of harp.Span
}

// JudgeStart asks what windows and pauses make of the start of a procedure on a host at a time; zero: now.
type JudgeStart struct {
	Host      string    `msgpack:"host"`
	Procedure string    `msgpack:"proc"`
	At        time.Time `msgpack:"at,omitempty"`
}

// Judged answers JudgeStart.
type Judged struct {
	harp.Verdict
	Obstacles Rows `msgpack:"obstacles,omitempty"` // of harp.Obstacle
}

// PauseHosts pauses the hosts that a target selects, or ends their pauses.
type PauseHosts struct {
	Request string `msgpack:"id"` // the same when it is asked again
	Target  string `msgpack:"target"`
	harp.HostPauseChange
}
