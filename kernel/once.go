package kernel

// Once names one use of a number that a session's client gives its messages, so
// that a message which is published again under it is stored once.
type Once struct {
	// Session is the session that the number belongs to, unique over all tenants
	// (SessionName).
	Session string
	// Number is the client's, used again once it has been released.
	Number uint16
	// Count rises with every use of any number of the session. A use whose count is
	// not higher than that of one stored before is a repeat.
	Count uint64
}

// SessionName is the name under which data of a session is kept, unique over all
// tenants. Neither name contains a NUL.
func SessionName(tenant, clientID string) string { return tenant + "\x00" + clientID }
