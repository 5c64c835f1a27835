// Package calendar fetches the calendars of maintenance windows from servers of others. It keeps nothing: when a calendar is
// fetched, and which copy of it is in force, is the dispatcher's matter.
package calendar

import "context"

// Source fetches calendars. It is safe for concurrent use.
type Source interface {
	// Check returns what is wrong with a URL that could not be fetched, as far as that can be told without asking anybody.
	Check(url string) error

	// Fetch returns what is at a URL, at most harp.MaxCalendar bytes that nobody has read yet; nil if that is what have is of. It takes at
	// most as long as ctx. Errors: why it cannot be fetched, in one line that does not tell the URL, whose path is often a
	// secret; ctx's.
	Fetch(ctx context.Context, url string, have Version) (*Copy, error)
}

// Version is what a server calls the copy that it gave. The zero Version is of none.
type Version struct {
	Tag      string `msgpack:"tag,omitempty"`      // its ETag
	Modified string `msgpack:"modified,omitempty"` // its Last-Modified
}

// Copy is a calendar as it was fetched.
type Copy struct {
	Content []byte
	Version Version
}
