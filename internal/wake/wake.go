// Package wake wakes goroutines by channels that hold one token: a waker never waits, and
// what is woken twice before it looks, looks once.
package wake

// Signal puts a token into c, a channel with room for one, unless there is one already.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
