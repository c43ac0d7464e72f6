package wire

import (
	"encoding/binary"

	"github.com/mochi-mqtt/server/v2/packets"
)

// MaxFilters bounds the filters of one SUBSCRIBE or UNSUBSCRIBE.
const MaxFilters = 1024

// Subscription options (MQTT 5.0, 3.8.3.1), as they stand in a packet.
const (
	OptionNoLocal           byte = 1 << 2
	OptionRetainAsPublished byte = 1 << 3
	OptionRetainHandling    byte = 3 << 4

	optionsReserved byte = 3 << 6
)

// Filter is one topic filter of a SUBSCRIBE.
type Filter struct {
	Name    string
	QoS     byte
	Options byte // the Option bits
}

// SubscribeRequest is a SUBSCRIBE packet.
type SubscribeRequest struct {
	ID         uint16
	Identifier uint32 // Subscription Identifier, 0 = none
	Filters    []Filter
}

// ParseSubscribe reads the body of a SUBSCRIBE. Filters are checked to be
// strings, not for their wildcards.
func ParseSubscribe(version byte, body []byte) (*SubscribeRequest, error) {
	if err := checkFilters(Subscribe, version, body); err != nil {
		return nil, err
	}
	pk, err := decode(Subscribe, version, body, (*packets.Packet).SubscribeDecode)
	if err != nil {
		return nil, err
	}
	s := &SubscribeRequest{ID: pk.PacketID, Filters: make([]Filter, len(pk.Filters))}
	if ids := pk.Properties.SubscriptionIdentifier; len(ids) > 0 {
		s.Identifier = uint32(ids[0])
	}
	for i, f := range pk.Filters {
		s.Filters[i] = Filter{Name: f.Filter, QoS: f.Qos, Options: options(&f)}
	}
	return s, nil
}

func options(f *packets.Subscription) (o byte) {
	if f.NoLocal {
		o |= OptionNoLocal
	}
	if f.RetainAsPublished {
		o |= OptionRetainAsPublished
	}
	return o | f.RetainHandling<<4
}

// checkFilters checks the layout of a SUBSCRIBE or UNSUBSCRIBE: mochi panics
// where the options of a filter are missing.
func checkFilters(pt, version byte, body []byte) error {
	_, rest, err := packetID(body)
	if err != nil {
		return err
	}
	if version == V5 {
		if _, rest, err = checkProperties(pt, rest); err != nil {
			return err
		}
	}
	if len(rest) == 0 {
		return violation("no topic filter")
	}
	for n := 1; len(rest) > 0; n++ {
		if n > MaxFilters {
			return &Error{QuotaExceeded, "too many topic filters in one packet"}
		}
		if rest, err = skipText(rest, "topic filter", true); err != nil {
			return err
		}
		if pt == Unsubscribe {
			continue
		}
		if len(rest) == 0 {
			return malformed("subscription options missing")
		}
		if err := checkOptions(version, rest[0]); err != nil {
			return err
		}
		rest = rest[1:]
	}
	return nil
}

func checkOptions(version, o byte) error {
	switch {
	case version != V5 && o > 2:
		return malformed("requested QoS")
	case o&optionsReserved != 0:
		return malformed("reserved subscription options")
	case o&3 == 3:
		return violation("requested QoS 3")
	case o&OptionRetainHandling == OptionRetainHandling:
		return violation("retain handling 3")
	}
	return nil
}

// Append appends the packet (for clients).
func (s *SubscribeRequest) Append(dst []byte, version byte) []byte {
	pk := &packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: Subscribe, Qos: 1},
		ProtocolVersion: version, PacketID: s.ID,
	}
	if s.Identifier != 0 {
		pk.Properties.SubscriptionIdentifier = []int{int(s.Identifier)}
	}
	for _, f := range s.Filters {
		pk.Filters = append(pk.Filters, packets.Subscription{
			Filter: f.Name, Qos: f.QoS,
			NoLocal:           f.Options&OptionNoLocal != 0,
			RetainAsPublished: f.Options&OptionRetainAsPublished != 0,
			RetainHandling:    f.Options & OptionRetainHandling >> 4,
		})
	}
	return encode(dst, pk, (*packets.Packet).SubscribeEncode)
}

// UnsubscribeRequest is an UNSUBSCRIBE packet.
type UnsubscribeRequest struct {
	ID      uint16
	Filters []string
}

// ParseUnsubscribe reads the body of an UNSUBSCRIBE.
func ParseUnsubscribe(version byte, body []byte) (*UnsubscribeRequest, error) {
	if err := checkFilters(Unsubscribe, version, body); err != nil {
		return nil, err
	}
	pk, err := decode(Unsubscribe, version, body, (*packets.Packet).UnsubscribeDecode)
	if err != nil {
		return nil, err
	}
	u := &UnsubscribeRequest{ID: pk.PacketID, Filters: make([]string, len(pk.Filters))}
	for i, f := range pk.Filters {
		u.Filters[i] = f.Filter
	}
	return u, nil
}

// Append appends the packet (for clients).
func (u *UnsubscribeRequest) Append(dst []byte, version byte) []byte {
	pk := &packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: Unsubscribe, Qos: 1},
		ProtocolVersion: version, PacketID: u.ID,
	}
	for _, f := range u.Filters {
		pk.Filters = append(pk.Filters, packets.Subscription{Filter: f})
	}
	return encode(dst, pk, (*packets.Packet).UnsubscribeEncode)
}

// AppendSuback appends a SUBACK with one code per filter. reason "" is left
// out. In version 3.1.1 every code from 0x80 on is 0x80.
func AppendSuback(dst []byte, version byte, id uint16, codes []Code, reason string) []byte {
	return appendCodes(dst, Suback, version, id, codes, reason)
}

// AppendUnsuback appends an UNSUBACK; version 3.1.1 has no codes.
func AppendUnsuback(dst []byte, version byte, id uint16, codes []Code) []byte {
	if version != V5 {
		return append(dst, Unsuback<<4, 2, byte(id>>8), byte(id))
	}
	return appendCodes(dst, Unsuback, version, id, codes, "")
}

func appendCodes(dst []byte, pt, version byte, id uint16, codes []Code, reason string) []byte {
	var p []byte
	size := 2 + len(codes)
	if version == V5 {
		if reason != "" {
			p = AppendText(p, PropReasonString, reason)
		}
		size += varintLen(len(p)) + len(p)
	}
	dst = AppendVarint(append(dst, pt<<4), size)
	dst = binary.BigEndian.AppendUint16(dst, id)
	if version == V5 {
		dst = append(AppendVarint(dst, len(p)), p...)
	}
	for _, c := range codes {
		if version != V5 && c >= UnspecifiedError {
			c = UnspecifiedError
		}
		dst = append(dst, byte(c))
	}
	return dst
}

// ParseSuback reads the body of a SUBACK or (version 5) UNSUBACK, for clients.
// The codes alias the body.
func ParseSuback(pt, version byte, body []byte) (id uint16, codes []byte, err error) {
	id, rest, err := packetID(body)
	if err != nil {
		return 0, nil, err
	}
	if version == V5 {
		if _, rest, err = checkProperties(pt, rest); err != nil {
			return 0, nil, err
		}
	}
	return id, rest, nil
}
