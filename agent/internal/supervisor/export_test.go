package supervisor

// Inside returns options under which commands run inside this process, also where supervisors
// can be had.
func Inside() Options { return Options{inside: true} }
