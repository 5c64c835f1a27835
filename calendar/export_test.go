package calendar

import (
	"net"
	"time"
)

// SetTime bounds what f takes for a fetch.
func SetTime(f *Fetcher, within time.Duration) { f.within = within }

// SetResolver makes names be resolved by r.
func SetResolver(f *Fetcher, r *net.Resolver) { f.transport.SetResolver(r) }
