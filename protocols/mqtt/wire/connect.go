package wire

import (
	"bytes"
	"encoding/binary"

	"github.com/mochi-mqtt/server/v2/packets"
)

// ConnectRequest is a CONNECT packet. What it holds is its own.
type ConnectRequest struct {
	Version     byte
	Clean       bool // Clean Session, Clean Start
	KeepAlive   uint16
	ClientID    string
	HasUser     bool
	User        string
	HasPassword bool
	Password    []byte
	Will        *Will

	// Version 5; the values stand for what an absent property means.
	SessionExpiry     uint32
	ReceiveMaximum    uint16 // 65,535 if absent
	MaximumPacketSize uint32 // 0: no limit
	TopicAliasMaximum uint16
	RequestProblem    bool   // true if absent
	AuthMethod        string // "" = none
	AuthData          []byte // nil = none
}

// Will is the message a CONNECT leaves behind.
type Will struct {
	Topic      string
	Payload    []byte
	QoS        byte
	Retain     bool
	Delay      uint32 // seconds; version 5
	properties []byte // checked, without their length; version 5
}

// Properties walks the will's properties.
func (w *Will) Properties() Properties { return Properties{pt: willProperties, rest: w.properties} }

// SetProperties sets the encoded properties (for clients).
func (w *Will) SetProperties(section []byte) { w.properties = section }

const (
	flagReserved = 1 << iota
	flagClean
	flagWill
	flagWillQoS1
	flagWillQoS2
	flagWillRetain
	flagPassword
	flagUser
)

// ParseConnect reads the body of a CONNECT. After an error the request is
// returned too, with the Version in which to answer (0: do not answer).
func ParseConnect(body []byte) (*ConnectRequest, error) {
	c := &ConnectRequest{ReceiveMaximum: 65535, RequestProblem: true}
	name, rest, ok := cutBytes(body)
	if !ok || len(rest) < 4 {
		return c, malformed("CONNECT cut short")
	}
	level, flags := rest[0], rest[1]
	switch {
	case string(name) == "MQIsdp" && level == 3, string(name) == "MQTT" && level < V311:
		c.Version = V311
		return c, &Error{UnsupportedVersion, "only MQTT 3.1.1 and 5 are supported"}
	case string(name) != "MQTT":
		return c, &Error{UnsupportedVersion, "not MQTT"}
	case level > V5:
		c.Version = V5
		return c, &Error{UnsupportedVersion, "only MQTT 3.1.1 and 5 are supported"}
	}
	c.Version = level
	will, err := checkConnect(level, flags, rest[4:])
	if err != nil {
		return c, err
	}
	pk, err := decode(Connect, level, body, (*packets.Packet).ConnectDecode)
	if err != nil {
		return c, err
	}
	c.fill(pk, will)
	return c, nil
}

// checkConnect checks everything after the keep alive and returns the section
// of will properties.
func checkConnect(level, flags byte, rest []byte) (will []byte, err error) {
	switch {
	case flags&flagReserved != 0:
		return nil, malformed("reserved connect flag")
	case flags&flagWill == 0 && flags&(flagWillQoS1|flagWillQoS2|flagWillRetain) != 0:
		return nil, malformed("will QoS or retain without a will")
	case flags&flagWillQoS1 != 0 && flags&flagWillQoS2 != 0:
		return nil, malformed("will QoS 3")
	case level != V5 && flags&flagPassword != 0 && flags&flagUser == 0:
		return nil, malformed("password without user name")
	}
	if level == V5 {
		if _, rest, err = checkProperties(Connect, rest); err != nil {
			return nil, err
		}
	}
	if rest, err = skipText(rest, "client identifier", true); err != nil {
		return nil, err
	}
	if flags&flagWill != 0 {
		if level == V5 {
			if will, rest, err = checkProperties(willProperties, rest); err != nil {
				return nil, err
			}
		}
		topic, _, _ := cutBytes(rest)
		if rest, err = skipText(rest, "will topic", true); err != nil {
			return nil, err
		}
		if len(topic) == 0 {
			return nil, &Error{TopicNameInvalid, "empty will topic"}
		}
		if err = checkTopic(topic); err != nil {
			return nil, err
		}
		if rest, err = skipText(rest, "will payload", false); err != nil {
			return nil, err
		}
	}
	if flags&flagUser != 0 {
		if rest, err = skipText(rest, "user name", true); err != nil {
			return nil, err
		}
	}
	if flags&flagPassword != 0 {
		if rest, err = skipText(rest, "password", false); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		return nil, malformed("bytes after the last field of CONNECT")
	}
	return will, nil
}

func skipText(b []byte, what string, utf bool) ([]byte, error) {
	v, rest, ok := cutBytes(b)
	if !ok {
		return nil, malformed(what + " cut short")
	}
	if utf && !ValidText(v) {
		return nil, malformed(what + " is not a valid UTF-8 string")
	}
	return rest, nil
}

// fill takes the values over from mochi's packet.
func (c *ConnectRequest) fill(pk *packets.Packet, will []byte) {
	p := &pk.Connect
	c.Clean, c.KeepAlive, c.ClientID = p.Clean, p.Keepalive, p.ClientIdentifier
	c.HasUser, c.User = p.UsernameFlag, string(p.Username)
	c.HasPassword, c.Password = p.PasswordFlag, p.Password
	if p.WillFlag {
		c.Will = &Will{
			Topic: p.WillTopic, Payload: p.WillPayload, QoS: p.WillQos, Retain: p.WillRetain,
			Delay: p.WillProperties.WillDelayInterval, properties: append([]byte(nil), will...),
		}
	}
	q := &pk.Properties
	c.SessionExpiry = q.SessionExpiryInterval
	if q.ReceiveMaximum != 0 { // 0 is refused before
		c.ReceiveMaximum = q.ReceiveMaximum
	}
	c.MaximumPacketSize, c.TopicAliasMaximum = q.MaximumPacketSize, q.TopicAliasMaximum
	c.RequestProblem = !q.RequestProblemInfoFlag || q.RequestProblemInfo == 1
	c.AuthMethod, c.AuthData = q.AuthenticationMethod, bytes.Clone(q.AuthenticationData)
}

// Append appends the packet (for clients).
func (c *ConnectRequest) Append(dst []byte) []byte {
	var flags byte
	set := func(on bool, f byte) {
		if on {
			flags |= f
		}
	}
	set(c.Clean, flagClean)
	set(c.HasUser, flagUser)
	set(c.HasPassword, flagPassword)
	if w := c.Will; w != nil {
		flags |= flagWill | w.QoS<<3
		set(w.Retain, flagWillRetain)
	}
	b := appendBytes(nil, "MQTT")
	b = binary.BigEndian.AppendUint16(append(b, c.Version, flags), c.KeepAlive)
	if c.Version == V5 {
		p := c.appendProperties(nil)
		b = append(AppendVarint(b, len(p)), p...)
	}
	b = appendBytes(b, c.ClientID)
	if w := c.Will; w != nil {
		if c.Version == V5 {
			p := append([]byte(nil), w.properties...)
			if w.Delay != 0 {
				p = AppendFour(p, PropWillDelay, w.Delay)
			}
			b = append(AppendVarint(b, len(p)), p...)
		}
		b = appendBytes(appendBytes(b, w.Topic), w.Payload)
	}
	if c.HasUser {
		b = appendBytes(b, c.User)
	}
	if c.HasPassword {
		b = appendBytes(b, c.Password)
	}
	return append(AppendVarint(append(dst, Connect<<4), len(b)), b...)
}

func (c *ConnectRequest) appendProperties(p []byte) []byte {
	if c.SessionExpiry != 0 {
		p = AppendFour(p, PropSessionExpiry, c.SessionExpiry)
	}
	if c.ReceiveMaximum != 0 {
		p = AppendTwo(p, PropReceiveMaximum, c.ReceiveMaximum)
	}
	if c.MaximumPacketSize != 0 {
		p = AppendFour(p, PropMaximumPacketSize, c.MaximumPacketSize)
	}
	if c.TopicAliasMaximum != 0 {
		p = AppendTwo(p, PropTopicAliasMaximum, c.TopicAliasMaximum)
	}
	if c.AuthMethod != "" {
		p = AppendText(p, PropAuthMethod, c.AuthMethod)
	}
	if c.AuthData != nil {
		p = AppendText(p, PropAuthData, c.AuthData)
	}
	return p
}
