package transport

// What a peer sends, or leaves unread, is paid for out of a [Budget] before it is held.
const (
	// maxReceived is how many bytes that were received and not taken a Budget has for all
	// peers, maxIdentityReceived for one, and maxSessionReceived for one session.
	maxReceived         = 64 << 20
	maxIdentityReceived = 16 << 20
	maxSessionReceived  = 8 << 20

	// maxAnswers is how many bytes of answers that are being made, or were not sent, a Budget
	// has for all peers, maxIdentityAnswers for one, and maxSessionAnswers for one session.
	maxAnswers         = 64 << 20
	maxIdentityAnswers = 32 << 20
	maxSessionAnswers  = 16 << 20

	// maxOpen is how many bytes a Budget has for the exchanges that all peers have opened,
	// maxIdentityOpen for those of one, and maxSessionOpen for those of one session.
	maxOpen         = 128 << 20
	maxIdentityOpen = 64 << 20
	maxSessionOpen  = 64 << 20

	// exchangePrice is what an exchange costs of that, beside what is left of its first body
	// when exchangeBody is taken off: a goroutine with its stack, and what it waits with.
	exchangePrice = 16 << 10
	exchangeBody  = 2 << 10
)
