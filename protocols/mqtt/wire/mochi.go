package wire

import (
	"bytes"
	"fmt"

	"github.com/mochi-mqtt/server/v2/packets"
)

// decode runs one of mochi's decoders over a body that has passed our own
// checks. Its strings alias the body, which is therefore cloned, and should it
// panic all the same the packet is malformed.
func decode(pt, version byte, body []byte, with func(*packets.Packet, []byte) error) (pk *packets.Packet, err error) {
	defer func() {
		if r := recover(); r != nil {
			pk, err = nil, malformed(fmt.Sprintf("packet of type %d cannot be decoded", pt))
		}
	}()
	pk = &packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: pt, Remaining: len(body)},
		ProtocolVersion: version,
	}
	if err := with(pk, bytes.Clone(body)); err != nil {
		return nil, malformed(err.Error())
	}
	return pk, nil
}

// encode appends what one of mochi's encoders makes of pk.
func encode(dst []byte, pk *packets.Packet, with func(*packets.Packet, *bytes.Buffer) error) []byte {
	pk.Mods.AllowResponseInfo = true // else Response Topic and Correlation Data are dropped
	var buf bytes.Buffer
	if err := with(pk, &buf); err != nil {
		// Encoders fail on packet identifier 0 only, which callers never use.
		panic(fmt.Sprintf("wire: encode packet of type %d: %v", pk.FixedHeader.Type, err))
	}
	return append(dst, buf.Bytes()...)
}
