package wire

import "bytes"

// AuthExchange is an AUTH packet (3.15), of version 5. What it holds is its own.
type AuthExchange struct {
	Code   Code
	Method string // "" = none
	Data   []byte // nil = none
	Reason string
}

// ParseAuth reads the body of an AUTH; an empty one means success.
func ParseAuth(body []byte) (AuthExchange, error) {
	if len(body) == 0 {
		return AuthExchange{Code: Success}, nil
	}
	a := AuthExchange{Code: Code(body[0])}
	switch a.Code {
	case Success, ContinueAuth, ReAuthenticate:
	default:
		return a, violation("AUTH with another reason code")
	}
	if len(body) == 1 {
		return a, nil
	}
	if _, rest, err := checkProperties(Auth, body[1:]); err != nil {
		return a, err
	} else if len(rest) > 0 {
		return a, malformed("bytes after the properties")
	}
	p, _, _ := cutProperties(Auth, body[1:])
	for p.Next() {
		switch p.ID {
		case PropAuthMethod:
			a.Method = string(p.Data)
		case PropAuthData:
			a.Data = bytes.Clone(p.Data)
			if a.Data == nil {
				a.Data = []byte{}
			}
		case PropReasonString:
			a.Reason = string(p.Data)
		}
	}
	return a, nil
}

// Append appends the packet.
func (a *AuthExchange) Append(dst []byte) []byte {
	var p []byte
	if a.Method != "" {
		p = AppendText(p, PropAuthMethod, a.Method)
	}
	if a.Data != nil {
		p = AppendText(p, PropAuthData, a.Data)
	}
	if a.Reason != "" {
		p = AppendText(p, PropReasonString, a.Reason)
	}
	body := append([]byte{byte(a.Code)}, AppendVarint(nil, len(p))...)
	body = append(body, p...)
	return append(AppendVarint(append(dst, Auth<<4), len(body)), body...)
}
