package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/mochi-mqtt/server/v2/packets"
)

// ConnectAnswer is a CONNACK packet.
type ConnectAnswer struct {
	Version        byte
	SessionPresent bool
	Code           Code // a return code (0..5) in version 3.1.1

	// Version 5, all but the last three only with Success.
	MaximumQoS        byte // stated if below 2
	RetainAvailable   bool
	ReceiveMaximum    uint16 // 0: not stated
	MaximumPacketSize uint32 // 0: not stated
	TopicAliasMaximum uint16
	SessionExpiry     *uint32 // if it is not what the client asked for
	KeepAlive         *uint16 // if it is not what the client asked for
	AssignedClientID  string
	AuthMethod        string
	AuthData          []byte
	Reason            string
}

// Append appends the packet.
func (a *ConnectAnswer) Append(dst []byte) []byte {
	if a.Version != V5 {
		var present byte
		if a.SessionPresent {
			present = 1
		}
		return append(dst, Connack<<4, 2, present, byte(a.Code))
	}
	pk := &packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: Connack},
		ProtocolVersion: V5,
		SessionPresent:  a.SessionPresent,
		ReasonCode:      byte(a.Code),
	}
	p := &pk.Properties
	p.ReasonString, p.AuthenticationMethod, p.AuthenticationData = a.Reason, a.AuthMethod, a.AuthData
	if a.Code == Success {
		a.capabilities(p)
	}
	return encode(dst, pk, (*packets.Packet).ConnackEncode)
}

func (a *ConnectAnswer) capabilities(p *packets.Properties) {
	p.MaximumQos, p.MaximumQosFlag = a.MaximumQoS, a.MaximumQoS < 2
	p.RetainAvailableFlag = true
	if a.RetainAvailable {
		p.RetainAvailable = 1
	}
	p.WildcardSubAvailable, p.WildcardSubAvailableFlag = 1, true
	p.SubIDAvailable, p.SubIDAvailableFlag = 1, true
	p.SharedSubAvailable, p.SharedSubAvailableFlag = 1, true
	p.ReceiveMaximum, p.MaximumPacketSize = a.ReceiveMaximum, a.MaximumPacketSize
	p.TopicAliasMaximum, p.AssignedClientID = a.TopicAliasMaximum, a.AssignedClientID
	if a.SessionExpiry != nil {
		p.SessionExpiryInterval, p.SessionExpiryIntervalFlag = *a.SessionExpiry, true
	}
	if a.KeepAlive != nil {
		p.ServerKeepAlive, p.ServerKeepAliveFlag = *a.KeepAlive, true
	}
}

// ParseConnack reads the body of a CONNACK (for clients). Absent properties
// have the value that their absence means.
func ParseConnack(version byte, body []byte) (*ConnectAnswer, error) {
	if len(body) < 2 || version != V5 && len(body) != 2 {
		return nil, malformed("CONNACK of wrong length")
	}
	a := &ConnectAnswer{
		Version: version, SessionPresent: body[0]&1 != 0, Code: Code(body[1]),
		MaximumQoS: 2, RetainAvailable: true, ReceiveMaximum: 65535,
	}
	if version != V5 {
		return a, nil
	}
	if _, rest, err := checkProperties(Connack, body[2:]); err != nil || len(rest) > 0 {
		return nil, malformed("CONNACK properties")
	}
	p, _, _ := cutProperties(Connack, body[2:])
	for p.Next() {
		switch p.ID {
		case PropMaximumQoS:
			a.MaximumQoS = byte(p.Num)
		case PropRetainAvailable:
			a.RetainAvailable = p.Num == 1
		case PropReceiveMaximum:
			a.ReceiveMaximum = uint16(p.Num)
		case PropMaximumPacketSize:
			a.MaximumPacketSize = p.Num
		case PropTopicAliasMaximum:
			a.TopicAliasMaximum = uint16(p.Num)
		case PropSessionExpiry:
			v := p.Num
			a.SessionExpiry = &v
		case PropServerKeepAlive:
			v := uint16(p.Num)
			a.KeepAlive = &v
		case PropAssignedClientID:
			a.AssignedClientID = string(p.Data)
		case PropAuthMethod:
			a.AuthMethod = string(p.Data)
		case PropAuthData:
			a.AuthData = bytes.Clone(p.Data)
		case PropReasonString:
			a.Reason = string(p.Data)
		}
	}
	return a, nil
}

// EndRequest is a DISCONNECT packet.
type EndRequest struct {
	Code          Code
	HasExpiry     bool
	SessionExpiry uint32
	Reason        string
}

// ParseDisconnect reads the body of a DISCONNECT.
func ParseDisconnect(version byte, body []byte) (EndRequest, error) {
	if version != V5 {
		if len(body) > 0 {
			return EndRequest{}, malformed("DISCONNECT with a body")
		}
		return EndRequest{}, nil
	}
	if len(body) < 2 { // mochi loses the code of a body of one byte
		if len(body) == 1 {
			return EndRequest{Code: Code(body[0])}, nil
		}
		return EndRequest{}, nil
	}
	if _, rest, err := checkProperties(Disconnect, body[1:]); err != nil {
		return EndRequest{}, err
	} else if len(rest) > 0 {
		return EndRequest{}, malformed("bytes after the properties")
	}
	pk, err := decode(Disconnect, version, body, (*packets.Packet).DisconnectDecode)
	if err != nil {
		return EndRequest{}, err
	}
	p := &pk.Properties
	return EndRequest{Code: Code(pk.ReasonCode), HasExpiry: p.SessionExpiryIntervalFlag,
		SessionExpiry: p.SessionExpiryInterval, Reason: p.ReasonString}, nil
}

// AppendDisconnect appends a DISCONNECT. reason "" is left out; version 3.1.1
// has neither code nor reason.
func AppendDisconnect(dst []byte, version byte, code Code, reason string) []byte {
	switch {
	case version != V5 || code == Success && reason == "":
		return append(dst, Disconnect<<4, 0)
	case reason == "":
		return append(dst, Disconnect<<4, 1, byte(code))
	}
	pk := &packets.Packet{FixedHeader: packets.FixedHeader{Type: Disconnect}, ProtocolVersion: V5, ReasonCode: byte(code)}
	pk.Properties.ReasonString = reason
	return encode(dst, pk, (*packets.Packet).DisconnectEncode)
}

// packetID reads the packet identifier that begins a body.
func packetID(body []byte) (id uint16, rest []byte, err error) {
	if len(body) < 2 {
		return 0, nil, malformed("packet identifier missing")
	}
	if id = binary.BigEndian.Uint16(body); id == 0 {
		return 0, nil, violation("packet identifier 0")
	}
	return id, body[2:], nil
}
