-- RPC-over-RDMA version two, with transport properties and round-trip reduction: a dissector for
-- Wireshark 4. docs/wire.md of this project describes the format, and how to install this file.
--
--   packets of a Send ──▶ message ──▶ header (Reader) ──▶ group of transmissions ──▶ RPC message
--                                                                                     └▶ Wireshark
-- A filter names a field as the documents do, without rdma_: rpcrdma2.xid, rpcrdma2.optxrq_count.
-- Version one is left to Wireshark's own dissector, rpcordma.

local proto = Proto("rpcrdma2", "RPC-over-RDMA version two")

-- Numbers (wire.md N1 to N4).

local MSG, NOMSG, MSGP, DONE, ERROR, OPTIONAL = 0, 1, 2, 3, 4, 5
local PROCS = {
  [MSG] = "RDMA_MSG", [NOMSG] = "RDMA_NOMSG", [MSGP] = "RDMA_MSGP", [DONE] = "RDMA_DONE",
  [ERROR] = "RDMA_ERROR", [OPTIONAL] = "RDMA_OPTIONAL",
}
local CONNPROP, REQPROP, RESPROP, UPDPROP, XMTREQ, XMTRESP, XMTCONT, REPTERR = 1, 2, 3, 4, 5, 6, 7, 8
local OPTTYPES = {
  "CONNPROP", "REQPROP", "RESPROP", "UPDPROP", "XMTREQ", "XMTRESP", "XMTCONT", "REPTERR",
}
local ERRORS = { "RDMA_ERR_VERS", "RDMA_ERR_BAD_HEADER", "RDMA_ERR_INVAL_OPTION" }
local RBSIZ, REQREMINV, BRS, RBSTRUCT, RTRSUPP = 1, 2, 3, 4, 7
local PROPERTIES = {
  "Receive Buffer Size", "Requester Remote Invalidation", "Backward Request Support",
  "Receive Buffer Structure", "Request Transmission Receive Limit",
  "Response Transmission Send Limit", "RTR Support",
}
local PROPERTY_TEXTS = { "rbsiz", "reqreminv", "brs", "rbstruct", "reqrxlim", "respsxlim", "rtrsupp" }
local PROPERTY_FIELDS = {
  "prop_rbsiz", "prop_reqreminv", "prop_brs", "xmrbuf_length", "xpr_rqrxl", "xpr_rssxl", "xpr_rtrs",
}
local EXRW, TBSN, CHOICE, BYSIZE, TOOSHORT, NOITEM = 1, 2, 3, 4, 5, 6
local PLACEMENTS = { "EXRW", "TBSN", "CHOICE", "BYSIZE", "TOOSHORT", "NOITEM" }
local REPORTS = {
  "BADHMT", "BADOMT", "BADCONT", "BADSEQ", "BADXID", "BADOFF", "BADTBSN", "BADPL",
}
local DIRECTIONS = { [0] = "call", [1] = "reply" }

-- Largest counts accepted (wire.md E40, W3, W4, E20).
local MAX = {
  items = 64, item_segments = 256, sets = 64, reads = 256, writes = 64, properties = 64,
  subset_words = 2, group = 64, structure_groups = 8, structure_segments = 64,
}

-- Fields.

local F = {}

local function field(kind, name, label, ...)
  F[name] = ProtoField[kind]("rpcrdma2." .. name, label, ...)
end

local function words(fields)
  for _, row in ipairs(fields) do
    field("uint32", row[1], row[2], row[3] or base.DEC, row[4])
  end
end

words {
  { "xid", "XID", base.HEX }, { "vers", "Version" }, { "credit", "Credits" },
  { "proc", "Procedure", base.DEC, PROCS },
  { "err", "Error", base.DEC, ERRORS },
  { "vers_low", "Lowest version" }, { "vers_high", "Highest version" },
  { "opttype", "Operation", base.DEC, OPTTYPES },
  { "optinfo", "Length of the operation's structure" },
  { "position", "Position" }, { "target", "RDMA segments" },
  { "handle", "Handle", base.HEX }, { "length", "Length" },
  { "opticonnpr_start", "Properties" }, { "opticonnpr_nochg", "Words: will not change" },
  { "optreqpr_want", "Properties requested" }, { "optupdpr_now", "Properties now" },
  { "optrespr_done", "Words: done" }, { "optrespr_rej", "Words: refused" },
  { "optrespr_other", "Properties set to another value" }, { "word", "Bits", base.HEX },
  { "pv_which", "Property", base.DEC, PROPERTIES }, { "pv_data", "Length of the value" },
  { "prop_rbsiz", "Receive buffer size" },
  { "prop_brs", "Backward request support", base.DEC, { [0] = "NONE", "INLINE", "GENL" } },
  { "xmrbuf_length", "Length of a receive buffer" }, { "xmrbuf_groups", "Groups of segments" },
  { "xmrgrp_count", "Segments" }, { "xmrseg_length", "Length of a segment" },
  { "xmrseg_align", "Alignment" },
  { "xpr_rqrxl", "Transmissions received in a request" },
  { "xpr_rssxl", "Transmissions sent in a reply" },
  { "optxrq_dp", "Items" }, { "optxrq_rsd", "Direction sets" },
  { "optxrq_count", "Transmissions of this request" },
  { "optxrq_rsbuf", "Transmissions allowed for the reply" },
  { "optxrq_pslen", "Payload stream in this transmission" },
  { "optxrs_dp", "Items" }, { "optxrs_count", "Transmissions of this reply" },
  { "optxrs_pslen", "Payload stream in this transmission" },
  { "optxc_xnum", "Number of this transmission" },
  { "optxc_itype", "Operation that began the group", base.DEC, OPTTYPES },
  { "optxc_pslen", "Payload stream in this transmission" },
  { "xmdmi_disp", "Displacement" }, { "xmdmi_length", "Length of the item" },
  { "xmdp_type", "Placement", base.DEC, PLACEMENTS },
  { "xmdl_ex", "RDMA segments" }, { "xmdl_offset", "Offset in the first segment" },
  { "xmdl_bsnum", "Buffer segments" }, { "tbsn", "Target buffer segment number" },
  { "xmdrsdr_begin", "Begin of the range" }, { "xmdrsdr_end", "End of the range" },
  { "xmdrsds_items", "Directions" }, { "xmdrsdi_minlen", "Minimum length" },
  { "xmdrsdl_ex", "RDMA segments" }, { "xmdrsdl_dsdov", "Largest length sent by Send" },
  { "xmdrsdl_bsex", "RDMA segments" },
  { "xmsi_xid", "XID", base.HEX }, { "xmsi_dir", "Direction", base.DEC, DIRECTIONS },
  { "xmsi_seq", "Number of the transmission" },
  { "optre_which", "Report", base.DEC, REPORTS },
  { "optri_expect", "Expected" }, { "optri_current", "Received" },
  { "optri_value", "Received" }, { "optri_min", "Least allowed" }, { "optri_max", "Most allowed" },
  { "rpc_length", "Length of the RPC message" }, { "send_packets", "Packets of the Send" },
}
for _, row in ipairs {
  { "reads", "Read list" }, { "writes", "Write list" }, { "reply", "Reply chunk" },
  { "next", "More follow" }, { "optre_lead", "Has a first transmission" },
  { "prop_reqreminv", "Remote invalidation" },
} do
  field("bool", row[1], row[2])
end
field("uint64", "offset", "Offset", base.HEX)
field("uint32", "xmrseg_flags", "Flags", base.HEX)
field("bool", "xmrseg_flags.plt", "Data may be placed here", 32, nil, 1)
field("uint32", "xpr_rtrs", "RTR support", base.HEX)
field("bool", "xpr_rtrs.xreq", "Transmit Request", 32, nil, 1)
field("bool", "xpr_rtrs.xresp", "Transmit Response", 32, nil, 2)
field("bool", "xpr_rtrs.xcont", "Transmit Continue", 32, nil, 4)
field("bytes", "optinfo_data", "Structure of an unknown operation")
field("bytes", "pv_unknown", "Value of an unknown property")
field("bytes", "payload", "Payload stream")
field("bytes", "placed", "Placed data, with its padding")
field("bytes", "after", "Bytes after the header")
field("bytes", "rpc_message", "RPC message")
field("string", "text", "Header in one line")
field("framenum", "group.frame", "Transmission in frame")
field("framenum", "reassembled_in", "RPC message in frame")
field("framenum", "send_in", "Message in frame")

local E = {}
for _, row in ipairs {
  { "malformed", "Bad header", expert.group.MALFORMED, expert.severity.ERROR },
  { "too_short", "Too short a message", expert.group.MALFORMED, expert.severity.ERROR },
  { "version", "Wrong version", expert.group.PROTOCOL, expert.severity.ERROR },
  { "reserved", "Reserved procedure", expert.group.PROTOCOL, expert.severity.WARN },
  { "unknown", "Unknown number", expert.group.UNDECODED, expert.severity.NOTE },
  { "no_credit", "Credit value is 0", expert.group.PROTOCOL, expert.severity.WARN },
  { "sequence", "Wrong order of transmissions", expert.group.SEQUENCE, expert.severity.ERROR },
  { "bad_payload", "Bad payload stream", expert.group.PROTOCOL, expert.severity.ERROR },
  { "placement", "Bad placement", expert.group.PROTOCOL, expert.severity.ERROR },
  { "structure", "Unusable structure", expert.group.PROTOCOL, expert.severity.WARN },
  { "reported", "Error report", expert.group.RESPONSE_CODE, expert.severity.NOTE },
  { "resent", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE },
  { "reduced", "RPC message not complete", expert.group.REASSEMBLE, expert.severity.COMMENT },
} do
  E[row[1]] = ProtoExpert.new("rpcrdma2.expert." .. row[1], row[2], row[3], row[4])
end

do
  local fields, experts = {}, {}
  for _, value in pairs(F) do fields[#fields + 1] = value end
  for _, value in pairs(E) do experts[#experts + 1] = value end
  proto.fields, proto.experts = fields, experts
end

-- Text, the same as that of the crate rpcrdma-xdr.

local function seq(list, separator)
  local shown = {}
  for i = 1, math.min(#list, 8) do shown[i] = list[i] end
  if #list > 8 then shown[9] = ("%d more"):format(#list - 8) end
  return table.concat(shown, separator or ", ")
end

local function bracketed(list) return "[" .. seq(list) .. "]" end

local function hex(range)
  if not range then return "0x" end
  local text = tostring(range:bytes()):lower()
  local more = #text / 2 - 32
  return more <= 0 and "0x" .. text or ("0x%s, %d more"):format(text:sub(1, 64), more)
end

-- A header is read word by word; each word becomes a field of the tree. Methods return what the
-- text says of a part, or what the rest of the dissector needs. An error is a table with `why`.

local Reader = {}
Reader.__index = Reader

local function bad(why, ...) error({ why = why:format(...) }, 0) end

function Reader:need(count, what)
  if self.at + count > self.stop then bad("the message ends inside %s at byte %d", what, self.at) end
end

function Reader:word(tree, name)
  self:need(4, name)
  local range = self.tvb(self.at, 4)
  self.at = self.at + 4
  return range:uint(), tree:add(F[name], range)
end

function Reader:count(tree, name, max)
  local count, item = self:word(tree, name)
  if count > max then bad("%s at byte %d is %d; at most %d are accepted", name, self.at - 4, count, max) end
  return count, item
end

function Reader:flag(tree, name)
  local value, item = self:word(tree, name)
  if value > 1 then bad("%s at byte %d is %d; 0 or 1 expected", name, self.at - 4, value) end
  return value == 1, item
end

function Reader:kind(tree, name, allowed)
  local value, item = self:word(tree, name)
  if not allowed[value] then bad("%s at byte %d is %d, which is not defined here", name, self.at - 4, value) end
  return value, item
end

-- The bytes of an opaque, without their padding; nil for none.
function Reader:opaque(length, what)
  self:need(length, what)
  local range = length > 0 and self.tvb(self.at, length) or nil
  self.at = self.at + length
  for _ = 1, -length % 4 do
    self:need(1, "padding")
    if self.tvb(self.at, 1):uint() ~= 0 then bad("the padding at byte %d is not zero", self.at) end
    self.at = self.at + 1
  end
  return range
end

-- A reader of the next `length` bytes, which it has to read to their end.
function Reader:inner(length, what)
  self:need(length, what)
  return setmetatable({ tvb = self.tvb, at = self.at, stop = self.at + length, notes = self.notes }, Reader)
end

function Reader:finish(what)
  if self.at < self.stop then bad("%d bytes follow %s, which ends at byte %d", self.stop - self.at, what, self.at) end
end

function Reader:segment(tree)
  self:need(16, "an RDMA segment")
  local node = tree:add(self.tvb(self.at, 16), "RDMA segment")
  local handle = self:word(node, "handle")
  local length = self:word(node, "length")
  local range = self.tvb(self.at, 8)
  node:add(F.offset, range)
  self.at = self.at + 8
  local text = ("%08x:%d@%s"):format(handle, length, tostring(range:bytes()):lower())
  node:set_text("RDMA segment " .. text)
  return text, length
end

-- A counted array of RDMA segments: its text, and how many bytes the segments have.
function Reader:segments(tree, name)
  local count, node = self:count(tree, name, MAX.item_segments)
  local texts, bytes = {}, 0
  for i = 1, count do
    local text, length = self:segment(node)
    texts[i], bytes = text, bytes + length
  end
  return bracketed(texts), bytes
end

function Reader:chunks(tree, h)
  local text, reads, writes = "", {}, {}
  local follows, node = self:flag(tree, "reads")
  while follows do
    if #reads == MAX.reads then bad("the Read list has more than %d segments", MAX.reads) end
    local position = self:word(node, "position")
    if position % 4 ~= 0 then bad("Read position %d is not a multiple of 4", position) end
    reads[#reads + 1] = ("%d=%s"):format(position, (self:segment(node)))
    follows = self:flag(node, "next")
  end
  follows, node = self:flag(tree, "writes")
  local moved = 0
  while follows do
    if #writes == MAX.writes then bad("the Write list has more than %d chunks", MAX.writes) end
    local chunk, bytes = self:segments(node, "target")
    writes[#writes + 1], moved = chunk, moved + bytes
    follows = self:flag(node, "next")
  end
  if #reads > 0 then text = text .. " reads " .. bracketed(reads) end
  if #writes > 0 then text = text .. " writes " .. bracketed(writes) end
  local reply
  reply, node = self:flag(tree, "reply")
  if reply then text = text .. " reply " .. self:segments(node, "target") end
  h.reads, h.writes, h.moved, h.reply = #reads, #writes, moved, reply
  return text
end

function Reader:error(tree, h)
  local code = self:kind(tree, "err", h.vers == 2 and ERRORS or { true })
  if code == 2 then return "bad-header" end
  if code == 3 then return "inval-option" end
  local low = self:word(tree, "vers_low")
  local high = self:word(tree, "vers_high")
  return ("vers %d-%d"):format(low, high)
end

-- Why the groups of segments are no structure that can be used (wire.md E19, E20, W4), or nil.
local function unusable(structure, stated)
  if #structure.groups == 0 then return "it has no segment" end
  if #structure.groups > MAX.structure_groups then return "it has more than 8 groups" end
  local sum, segments = 0, 0
  for _, group in ipairs(structure.groups) do
    local align = group.align
    while align > 1 and align % 2 == 0 do align = align / 2 end
    if align > 1 then return ("alignment %d is not a power of two"):format(group.align) end
    if group.count > 0 and group.length == 0 then return "a segment has no bytes" end
    sum, segments = sum + group.count * group.length, segments + group.count
  end
  if segments == 0 then return "it has no segment" end
  if segments > MAX.structure_segments then return "it has more than 64 segments" end
  if sum ~= stated then return ("its length is %d, the sum of its segments %d"):format(stated, sum) end
end

function Reader:structure(tree)
  local stated = self:word(tree, "xmrbuf_length")
  local count, node = self:word(tree, "xmrbuf_groups")
  if count * 16 ~= self.stop - self.at then bad("%d groups have not %d bytes", count, self.stop - self.at) end
  local structure, texts, start = { groups = {}, targets = {} }, {}, 0
  for i = 1, count do
    local group = { count = self:word(node, "xmrgrp_count"), length = self:word(node, "xmrseg_length"),
      align = self:word(node, "xmrseg_align") }
    local flags, item = self:word(node, "xmrseg_flags")
    item:add(F["xmrseg_flags.plt"], self.tvb(self.at - 4, 4))
    local placed = flags % 2 == 1
    structure.groups[i] = group
    texts[i] = ("%dx%d%s"):format(group.count, group.length, placed and "p" or "")
    for _ = 1, math.min(group.count, MAX.structure_segments) do
      if placed then table.insert(structure.targets, { start = start, length = group.length }) end
      start = start + group.length
    end
  end
  local why = unusable(structure, stated)
  if why then
    self.notes[#self.notes + 1] = { E.structure, "The structure is ignored: " .. why }
    return nil
  end
  return table.concat(texts, "+"), structure
end

-- The text of a known property's value, and the structure if it is one.
function Reader:property(tree, id)
  if id == RBSTRUCT then return self:structure(tree) end
  if id == REQREMINV then return tostring((self:flag(tree, "prop_reqreminv"))) end
  if id == BRS then return ("%d"):format((self:kind(tree, "prop_brs", { [0] = true, true, true }))) end
  local value, item = self:word(tree, PROPERTY_FIELDS[id])
  if id == RBSIZ and value < 1024 then bad("a receive buffer of %d bytes is smaller than 1024", value) end
  if id ~= RTRSUPP then return ("%d"):format(value) end
  for _, bit in ipairs { "xreq", "xresp", "xcont" } do
    item:add(F["xpr_rtrs." .. bit], self.tvb(self.at - 4, 4))
  end
  return ("0x%x"):format(value)
end

function Reader:properties(tree, name, h)
  local count, set = self:count(tree, name, MAX.properties)
  local texts, seen = {}, {}
  for i = 1, count do
    local id, node = self:word(set, "pv_which")
    local length = self:word(node, "pv_data")
    local known, shown = PROPERTY_TEXTS[id], "default"
    if known and seen[id] then bad("property %d occurs twice", id) end
    seen[id] = true
    local value = self:inner(length, "the value of a property")
    local range = self:opaque(length, "the value of a property")
    if not known then
      if range then node:add(F.pv_unknown, range) end
      shown = hex(range)
    elseif range then
      local text, structure = value:property(node, id)
      shown, h.structure = text or hex(range), structure or h.structure
      if text then value:finish("property " .. id) end
    end
    texts[i] = ("%s %s"):format(known or "prop" .. ("%d"):format(id), shown)
  end
  return bracketed(texts)
end

function Reader:subset(tree, name)
  local count, node = self:count(tree, name, MAX.subset_words)
  local members = {}
  for i = 0, count - 1 do
    local word = self:word(node, "word")
    for bit = 0, 31 do
      if math.floor(word / 2 ^ bit) % 2 == 1 then members[#members + 1] = ("%d"):format(32 * i + bit) end
    end
  end
  return "{" .. table.concat(members, ",") .. "}"
end

function Reader:item(tree, h)
  local disp, node = self:word(tree, "xmdmi_disp")
  local length = self:word(node, "xmdmi_length")
  local kind = self:kind(node, "xmdp_type", { true, true, [TOOSHORT] = true, [NOITEM] = true })
  local item = { disp = disp, length = length, kind = kind, numbers = {} }
  local text = ("%d+%d %s"):format(disp, length, PLACEMENTS[kind]:lower())
  h.items[#h.items + 1] = item
  if kind == EXRW then
    text = text .. " " .. self:segments(node, "xmdl_ex")
  elseif kind == TBSN then
    item.offset = self:word(node, "xmdl_offset")
    local count, list = self:count(node, "xmdl_bsnum", MAX.item_segments)
    local texts = {}
    for i = 1, count do
      item.numbers[i] = self:word(list, "tbsn")
      texts[i] = ("%d"):format(item.numbers[i])
    end
    text = text .. " " .. seq(texts, ",")
    if item.offset ~= 0 then text = ("%s offset %d"):format(text, item.offset) end
  end
  return text
end

function Reader:items(tree, name, h)
  local count, node = self:count(tree, name, MAX.items)
  local texts = {}
  for i = 1, count do texts[i] = self:item(node, h) end
  return bracketed(texts)
end

function Reader:direction(tree)
  local least, node = self:word(tree, "xmdrsdi_minlen")
  local kind = self:kind(node, "xmdp_type", { true, true, true, true })
  local text = ("min %d %s"):format(least, PLACEMENTS[kind]:lower())
  if kind == TBSN then return text end
  if kind ~= BYSIZE then return text .. " " .. self:segments(node, "xmdrsdl_ex") end
  local over = self:word(node, "xmdrsdl_dsdov")
  return ("%s %d %s"):format(text, over, (self:segments(node, "xmdrsdl_bsex")))
end

function Reader:directions(tree)
  local count, list = self:count(tree, "optxrq_rsd", MAX.sets)
  local sets, all = {}, 0
  for i = 1, count do
    local first, node = self:word(list, "xmdrsdr_begin")
    local last = self:word(node, "xmdrsdr_end")
    local directed = self:count(node, "xmdrsds_items", MAX.items)
    local texts = {}
    for j = 1, directed do texts[j] = self:direction(node) end
    sets[i], all = ("%d-%d %s"):format(first, last, bracketed(texts)), all + directed
  end
  if all > MAX.items then bad("%d results are directed; at most %d are accepted", all, MAX.items) end
  return bracketed(sets)
end

function Reader:message_id(tree)
  local xid = self:word(tree, "xmsi_xid")
  local dir = self:kind(tree, "xmsi_dir", DIRECTIONS)
  local number = self:word(tree, "xmsi_seq")
  return ("%s 0x%08x #%d"):format(DIRECTIONS[dir], xid, number)
end

function Reader:report(tree)
  local of = self:message_id(tree)
  local has_lead, node = self:flag(tree, "optre_lead")
  if has_lead then of = of .. " led by " .. self:message_id(node) end
  local which = self:kind(tree, "optre_which", REPORTS)
  local text = REPORTS[which]:lower()
  if which >= 6 then
    local value, least, most = self:word(tree, "optri_value"), self:word(tree, "optri_min"),
      self:word(tree, "optri_max")
    text = ("%s %d not in %d-%d"):format(text, value, least, most)
  elseif which ~= 3 then
    local expected = self:word(tree, "optri_expect")
    local received = self:word(tree, "optri_current")
    text = ("%s %d for %d"):format(text, received, expected)
  end
  return ("repterr %s of %s"):format(text, of)
end

-- How each operation is read, by its number.
local OPERATIONS = {
  function(self, tree, h)
    local start = self:properties(tree, "opticonnpr_start", h)
    return ("connprop %s nochg %s"):format(start, self:subset(tree, "opticonnpr_nochg"))
  end,
  function(self, tree, h) return "reqprop " .. self:properties(tree, "optreqpr_want", h) end,
  function(self, tree, h)
    local done, rej = self:subset(tree, "optrespr_done"), self:subset(tree, "optrespr_rej")
    return ("resprop done %s rej %s other %s"):format(done, rej, self:properties(tree, "optrespr_other", h))
  end,
  function(self, tree, h) return "updprop " .. self:properties(tree, "optupdpr_now", h) end,
  function(self, tree, h)
    local dp, rsd = self:items(tree, "optxrq_dp", h), self:directions(tree)
    h.count = self:word(tree, "optxrq_count")
    local rsbuf = self:word(tree, "optxrq_rsbuf")
    h.pslen = self:word(tree, "optxrq_pslen")
    return ("xmtreq dp %s rsd %s count %d rsbuf %d pslen %d"):format(dp, rsd, h.count, rsbuf, h.pslen)
  end,
  function(self, tree, h)
    local dp = self:items(tree, "optxrs_dp", h)
    h.count = self:word(tree, "optxrs_count")
    h.pslen = self:word(tree, "optxrs_pslen")
    return ("xmtresp dp %s count %d pslen %d"):format(dp, h.count, h.pslen)
  end,
  function(self, tree, h)
    h.xnum = self:word(tree, "optxc_xnum")
    h.itype = self:word(tree, "optxc_itype")
    h.pslen = self:word(tree, "optxc_pslen")
    return ("xmtcont xnum %d itype %d pslen %d"):format(h.xnum, h.itype, h.pslen)
  end,
  function(self, tree, h) return self:report(tree) end,
}

function Reader:optional(tree, h)
  h.opttype = self:word(tree, "opttype")
  local length, node = self:word(tree, "optinfo")
  local read = OPERATIONS[h.opttype]
  if not read then
    self.notes[#self.notes + 1] = { E.unknown, ("Operation %d is not known"):format(h.opttype) }
    local range = self:opaque(length, "the structure of an operation")
    if range then node:add(F.optinfo_data, range) end
    return ("optional %d %s"):format(h.opttype, hex(range))
  end
  local inner = self:inner(length, "the structure of an operation")
  local text = read(inner, node, h)
  inner:finish("the operation's structure")
  self.at = inner.stop
  return text
end

-- Reads a header into `h`: what the rest needs of it, `text` in one line, and `len`.
function Reader:header(tree, h)
  h.xid = self:word(tree, "xid")
  h.vers = self:word(tree, "vers")
  h.credit = self:word(tree, "credit")
  h.proc = self:word(tree, "proc")
  local body
  if h.proc ~= ERROR and h.vers ~= 2 then
    bad("version %d in a connection of version two", h.vers)
  elseif h.proc == MSG then
    body = "msg" .. self:chunks(tree, h)
  elseif h.proc == NOMSG then
    body = "nomsg" .. self:chunks(tree, h)
    if h.reads + h.writes == 0 and not h.reply then bad("RDMA_NOMSG without a chunk") end
  elseif h.proc == DONE then
    body = "done"
  elseif h.proc == ERROR then
    body = "error " .. self:error(tree, h)
  elseif h.proc == OPTIONAL then
    body = self:optional(tree, h)
  else
    bad("procedure %d is not one of version two", h.proc)
  end
  h.text = ("xid 0x%08x v%d credit %d %s"):format(h.xid, h.vers, h.credit, body)
  h.len = self.at
end

-- What is known of the traffic. A *side* is the Sends to one queue pair, or of one direction of an
-- iWARP connection. All of it is found out when a packet is first seen, and kept by packet, because
-- Wireshark dissects packets again in any order.

local sides, packets, waiting

function proto.init() sides, packets, waiting = {}, {}, {} end

local function side_of(id)
  sides[id] = sides[id] or { id = id }
  return sides[id]
end

-- The sides of a connection find each other by the first message that answers one: it has its xid.
local function pair(side, hosts, xid)
  if side.partner then return end
  xid = ("%08x"):format(xid)
  local there = waiting[hosts.there .. xid]
  while there and there[1] do
    local other = table.remove(there, 1)
    if not other.partner then
      side.partner, other.partner = other, side
      return
    end
  end
  local here = hosts.here .. xid
  waiting[here] = waiting[here] or {}
  if waiting[here][#waiting[here]] ~= side then table.insert(waiting[here], side) end
end

local function note(notes, which, why, ...) notes[#notes + 1] = { which, why:format(...) } end

-- The parts of items that arrived by Send, in order; nil and why if they are not all there.
local function placed_item(item, group, targets)
  local parts, left, offset = {}, item.length, item.offset
  for _, number in ipairs(item.numbers) do
    local part = group.parts[math.floor(number / #targets) + 1]
    local target = targets[number % #targets + 1]
    if not part then return nil, ("segment %d is not in the group"):format(number) end
    local length = math.min(left, target.length - offset)
    local first = target.start + offset
    if length <= 0 or offset % 4 ~= 0 then return nil, ("offset %d in segment %d"):format(offset, number) end
    if first < part.placed_at then return nil, ("segment %d begins inside header or payload"):format(number) end
    if first + length > #part.message then return nil, ("segment %d was not received"):format(number) end
    parts[#parts + 1] = part.message:sub(first + 1, first + length)
    left, offset = left - length, 0
  end
  if left > 0 then return nil, ("%d bytes of an item have no segment"):format(left) end
  return table.concat(parts)
end

-- The RPC message of a complete group: payload streams, with items where they belong. Without a
-- part that RDMA Reads or Writes have moved, or that the capture does not show, it is nil.
local function whole_message(group, side, notes)
  local stream = {}
  for i, part in ipairs(group.parts) do stream[i] = part.payload end
  stream = table.concat(stream)
  local targets = side.partner and side.partner.structure and side.partner.structure.targets
  local out, taken, length = {}, 0, 0
  for _, item in ipairs(group.items) do
    if item.kind == EXRW and item.length > 0 then
      return nil, ("%d bytes at %d are moved by explicit RDMA"):format(item.length, item.disp)
    elseif item.kind == TBSN then
      if not targets or #targets == 0 then
        return nil, "the receiver's buffer structure is not in the capture"
      end
      local data, why = placed_item(item, group, targets)
      local before = item.disp - length
      if data and (before < 0 or taken + before > #stream) then why = ("displacement %d"):format(item.disp) end
      if why then
        note(notes, E.placement, "An item is not where it is said to be: %s", why)
        return nil, why
      end
      out[#out + 1] = stream:sub(taken + 1, taken + before)
      out[#out + 1] = data .. ("\0"):rep(-#data % 4)
      taken, length = taken + before, item.disp + #data + -#data % 4
    end
  end
  out[#out + 1] = stream:sub(taken + 1)
  return table.concat(out)
end

local function complete(group, side, packet)
  group.rpc, group.why = whole_message(group, side, packet.notes)
  group.last, group.parts = packet, nil
end

local function abandon(side, packet, why, ...)
  local group = side.group
  note(packet.notes, E.sequence, why, ...)
  note(packet.notes, E.sequence, "The group of xid 0x%08x ends after %d of %d transmissions", group.xid,
    #group.parts, group.count)
  side.group, side.aborted = nil, group.xid
end

local function join(group, packet, h, part)
  table.insert(group.parts, part)
  table.insert(group.packets, packet.number)
  packet.group, packet.index = group, #group.parts
end

-- A further transmission of a group (wire.md E1, E3, E5).
local function continue(side, packet, h, part)
  local group = side.group
  if not group then
    if side.aborted ~= h.xid then note(packet.notes, E.sequence, "No group is open: XMTCONT is not expected") end
  elseif h.xid ~= group.xid then
    abandon(side, packet, "xid 0x%08x continues a group of xid 0x%08x", h.xid, group.xid)
  elseif h.xnum ~= #group.parts then
    abandon(side, packet, "Transmission %d where %d is due", h.xnum, #group.parts)
  elseif h.itype ~= 0 and h.itype ~= group.opttype then
    abandon(side, packet, "optxc_itype is %d in a group of %s", h.itype, OPTTYPES[group.opttype])
  else
    join(group, packet, h, part)
    if #group.parts == group.count then
      side.group = nil
      complete(group, side, packet)
    end
  end
end

-- An initial transmission of a group, or a message that is none.
local function begin(side, packet, h, part)
  if side.group then abandon(side, packet, "A group is open: only its XMTCONT is expected") end
  if h.proc == OPTIONAL and (h.opttype == XMTREQ or h.opttype == XMTRESP) then
    local group = { xid = h.xid, opttype = h.opttype, count = h.count, items = h.items, parts = {}, packets = {} }
    join(group, packet, h, part)
    side.aborted = nil
    if h.count == 0 or h.count > MAX.group then
      note(packet.notes, E.sequence, "A group of %d transmissions; 1 to %d are allowed", h.count, MAX.group)
    elseif h.count == 1 then
      complete(group, side, packet)
    else
      side.group = group
    end
  elseif h.proc == MSG then
    local group = { count = 1, last = packet }
    packet.group = group
    local is_reply = part.payload:sub(5, 8) == "\0\0\0\1"
    if h.reads > 0 then
      group.why = "parts of it are in Read chunks"
    elseif is_reply and h.moved > 0 then
      group.why = ("%d bytes of it are in Write chunks"):format(h.moved)
    else
      group.rpc = part.payload
    end
  end
end

-- The payload stream after the header: its length, and what is wrong with it (wire.md E10).
local function payload_length(h, length, notes)
  local rest = length - h.len
  if h.proc == MSG then return rest end
  if not h.pslen then
    if rest > 0 and h.opttype and h.opttype >= CONNPROP and h.opttype <= UPDPROP then
      note(notes, E.bad_payload, "%d bytes follow an operation that has no payload", rest)
    end
    return 0
  end
  local least = h.opttype == XMTCONT and 0 or 8
  if h.pslen > rest then
    note(notes, E.bad_payload, "The payload stream has %d bytes, but %d follow the header", h.pslen, rest)
  elseif h.pslen < least or h.pslen % 4 ~= 0 then
    note(notes, E.bad_payload, "A payload stream of %d bytes; a multiple of 4 from %d on is allowed", h.pslen, least)
  end
  return math.min(h.pslen, rest)
end

-- What a header says that is odd by itself.
local function remark(h, notes)
  local is_report = h.proc == ERROR or h.opttype == REPTERR
  if is_report then note(notes, E.reported, "The sender reports an error") end
  if h.credit == 0 and not is_report and h.proc ~= DONE then
    note(notes, E.no_credit, "A credit value of 0 is taken as 1")
  end
  if h.proc == DONE then note(notes, E.reserved, "RDMA_DONE is reserved and is dropped") end
end

-- What the whole conversation says of a message, once.
local function follow(side, hosts, packet, h, message)
  if not packet.is_new then return end
  packet.is_new = false
  local notes = packet.notes
  remark(h, notes)
  h.payload_len = payload_length(h, #message, notes)
  packet.payload_len = h.payload_len
  if packet.is_resent then return end
  local part = {
    message = message, payload = message:sub(h.len + 1, h.len + h.payload_len), placed_at = h.len + h.payload_len,
  }
  if h.proc == MSG and part.payload:sub(1, 4) ~= message:sub(1, 4) then
    note(notes, E.bad_payload, "The xid of the RPC message is another one")
  end
  if h.proc ~= ERROR then side.is_two = true end
  if h.opttype ~= XMTCONT then pair(side, hosts, h.xid) end
  if h.opttype == CONNPROP and not side.has_properties then
    side.has_properties, side.structure = true, h.structure
  end
  if h.opttype == XMTCONT then continue(side, packet, h, part) else begin(side, packet, h, part) end
end

-- Shows a message, and hands on the RPC message that it completes.

local rpc = Dissector.get("rpc")

-- Whether bytes may be a message of ONC RPC: a payload that is none would be called malformed.
local function is_rpc(message)
  local kind = message:sub(5, 12)
  return (kind == "\0\0\0\0\0\0\0\2" and #message >= 40)
    or ((kind == "\0\0\0\1\0\0\0\0" or kind == "\0\0\0\1\0\0\0\1") and #message >= 20)
end

local function show_group(tree, tvb, packet, pinfo, root)
  local group = packet.group
  if not group then return end
  for _, number in ipairs(group.count > 1 and group.packets or {}) do
    tree:add(F["group.frame"], number):set_generated()
  end
  if not group.last then return end
  if group.last ~= packet then
    tree:add(F.reassembled_in, group.last.number):set_generated()
  elseif not group.rpc then
    tree:add_proto_expert_info(E.reduced, "The RPC message is not dissected: " .. group.why)
  elseif #group.rpc > 0 then
    tree:add(F.rpc_length, #group.rpc):set_generated()
    local whole = ByteArray.new(group.rpc, true):tvb("RPC message")
    -- Where the dissector of RPC fails, it has said so in the tree, and the call is an error of Lua.
    local ok, used = is_rpc(group.rpc), 0
    if ok then ok, used = pcall(rpc.call, rpc, whole, pinfo, root) end
    if not ok or used == 0 then tree:add(F.rpc_message, whole()) end
  end
end

local function title(h, packet)
  local name = h.proc == OPTIONAL and (OPTTYPES[h.opttype] or "RDMA_OPTIONAL") or PROCS[h.proc] or "Unknown"
  local text = ("%s xid 0x%08x"):format(name, h.xid or 0)
  local group = packet.group
  if not group or group.count < 2 then return text end
  return ("%s (%d of %d)"):format(text, packet.index, group.count)
end

local function show(tvb, pinfo, root, side, hosts, packet)
  local tree = root:add(proto, tvb())
  local h = { items = {} }
  local reader = setmetatable({ tvb = tvb, at = 0, stop = tvb:len(), notes = {} }, Reader)
  pinfo.cols.protocol = "RPCoRDMA2"
  local ok, problem = pcall(reader.header, reader, tree, h)
  if not ok and type(problem) ~= "table" then error(problem, 0) end
  if packet.send_packets then tree:add(F.send_packets, packet.send_packets):set_generated() end
  if ok then
    follow(side, hosts, packet, h, tvb:raw())
    tree:add(F.text, h.text):set_generated()
    tree:append_text(", " .. h.text)
    local rest = tvb:len() - h.len
    local length = packet.payload_len
    if length > 0 then tree:add(F.payload, tvb(h.len, length)) end
    if rest > length then tree:add(h.pslen and F.placed or F.after, tvb(h.len + length, rest - length)) end
  else
    local short = tvb:len() < 16
    tree:add_proto_expert_info(h.vers == 2 and (short and E.too_short or E.malformed) or E.version,
      (short and "Too short: " or "Bad header: ") .. problem.why)
  end
  pinfo.cols.info = title(h, packet) .. " "
  pinfo.cols.info:fence()
  for _, list in ipairs { reader.notes, packet.notes } do
    for _, remark in ipairs(list) do tree:add_proto_expert_info(remark[1], remark[2]) end
  end
  if ok then show_group(tree, tvb, packet, pinfo, root) end
end

-- Whether bytes are a header of version two. Where messages of version two have gone before, in both
-- directions, one of another version is a violation, which is shown.
local function is_ours(tvb, side)
  local length = tvb:len()
  if length < 8 then return side.is_two end
  local version = tvb(4, 4):uint()
  if length < 16 then return version == 2 and side.is_two end
  local proc = tvb(12, 4):uint()
  if version == 2 then return side.is_two or proc <= OPTIONAL end
  local is_versions = proc == ERROR and length == 28 and tvb(16, 4):uint() == 1
  if is_versions and version > 2 then return tvb(20, 4):uint() <= tvb(24, 4):uint() end
  return not is_versions and side.is_two and side.partner and side.partner.is_two
end

-- What a packet of a Send is, found out when it is seen first; false if it is none of ours. A device
-- sends packets again, with the same numbers; `number` is nil where the layer below sorts them out.
local function classify(tvb, pinfo, side, place, number)
  local packet = { number = pinfo.number, notes = {}, is_new = true, place = "part" }
  local ahead = number and side.next_number and (number - side.next_number) % 2 ^ 24 or 0
  if ahead >= 2 ^ 23 and ahead < 2 ^ 24 - 2 ^ 16 then -- Another connection, with the queue pair of one before.
    side.group, side.aborted, side.has_properties, side.structure, side.is_two = nil, nil, nil, nil, nil
  elseif ahead >= 2 ^ 23 then
    packet.is_resent = true
    if place == "only" then packet.place = place end
    note(packet.notes, E.resent, "The device has sent this packet again")
    return side.is_two and packet or false
  end
  side.next_number = number and (number + 1) % 2 ^ 24
  if place == "only" then
    packet.place, side.send = place, nil
    return is_ours(tvb, side) and packet
  elseif place == "first" then
    side.send = is_ours(tvb, side) and { parts = {}, packets = {} } or nil
  elseif ahead > 0 then
    side.send = nil
  end
  local send = side.send
  if not send then return false end
  table.insert(send.parts, tvb:raw())
  table.insert(send.packets, packet)
  if place == "last" then
    packet.place, packet.message, packet.send_packets = place, table.concat(send.parts), #send.parts
    for _, part in ipairs(send.packets) do part.send_in = pinfo.number end
    side.send = nil
  end
  return packet
end

-- A Send, or a packet of one. `place`: only, first, middle or last.
local function on_send(tvb, pinfo, root, side, hosts, id, place, number)
  local packet = packets[id]
  if packet == nil then
    packet = classify(tvb, pinfo, side, place, number)
    packets[id] = packet
  end
  if not packet then return false end
  if packet.place == "only" then
    show(tvb, pinfo, root, side, hosts, packet)
  elseif packet.place == "last" then
    show(ByteArray.new(packet.message, true):tvb("Send"), pinfo, root, side, hosts, packet)
  else
    local tree = root:add(proto, tvb(), "RPC-over-RDMA version two, part of a Send")
    if packet.send_in then tree:add(F.send_in, packet.send_in):set_generated() end
    for _, remark in ipairs(packet.notes) do tree:add_proto_expert_info(remark[1], remark[2]) end
    pinfo.cols.protocol = "RPCoRDMA2"
  end
  return true
end

local function hosts_of(pinfo)
  local from, to = tostring(pinfo.src), tostring(pinfo.dst)
  return { here = from .. ">" .. to .. " ", there = to .. ">" .. from .. " " }
end

-- InfiniBand and RoCE. Wireshark has fields of the header in front of a payload only when a
-- packet is displayed, and not when it reads a file first. So the header of RoCE is read
-- here, on its way to Wireshark's own dissector.

local SENDS = {
  [0] = "first", "middle", "last", "last", "only", "only", [22] = "last", [23] = "only",
}
local EXTENDED = { [3] = 4, [5] = 4, [22] = 4, [23] = 4 }
local fields = {
  opcode = Field.new("infiniband.bth.opcode"), psn = Field.new("infiniband.bth.psn"),
  pad = Field.new("infiniband.bth.padcnt"), qp = Field.new("infiniband.bth.destqp"),
}
local bth = {} -- of the packet of this number; `start` is that of the payload in the frame

local function bth_of(pinfo)
  if bth.number == pinfo.number then return bth end
  if not fields.opcode() then return {} end
  return { opcode = fields.opcode().value, psn = fields.psn().value, pad = fields.pad().value, qp = fields.qp().value }
end

local function on_infiniband(tvb, pinfo, root)
  local header = bth_of(pinfo)
  header.is_offered = true
  local place = SENDS[header.opcode]
  if not place or tvb:len() <= header.pad then return false end
  local hosts = hosts_of(pinfo)
  local side = side_of(("%s%d"):format(hosts.here, header.qp))
  -- The other queue pair is known where the capture has the set-up of the connection.
  if not side.partner and pinfo.src_port > 1 and pinfo.src_port < 2 ^ 24 then
    side.partner = side_of(("%s%d"):format(hosts.there, pinfo.src_port))
    side.partner.partner = side
  end
  if header.pad > 0 then tvb = tvb(0, tvb:len() - header.pad):tvb() end
  return on_send(tvb, pinfo, root, side, hosts, pinfo.number, place, header.psn)
end

-- Reads the base transport header at `start` of what the dissector of `key` in a table gets.
local function watch(name, table_name, key, start)
  local dissectors = DissectorTable.get(table_name)
  local inner = dissectors:get_dissector(key)
  if not inner then return end
  local watcher = Proto(name, "InfiniBand header in " .. table_name .. ", for RPC-over-RDMA version two")
  function watcher.dissector(tvb, pinfo, root)
    bth = {}
    if tvb:len() >= start + 12 then
      local opcode = tvb(start, 1):uint()
      bth = {
        number = pinfo.number, opcode = opcode, pad = tvb(start + 1, 1):bitfield(2, 2),
        qp = tvb(start + 5, 3):uint(), psn = tvb(start + 9, 3):uint(),
        start = tvb:offset() + start + 12 + (EXTENDED[opcode] or 0),
      }
    end
    -- Where the dissector fails, it has said so in the tree.
    pcall(inner.call, inner, tvb, pinfo, root)
    return tvb:len()
  end
  dissectors:add(key, watcher)
end

watch("rpcrdma2_rroce", "udp.port", 4791, 0)
watch("rpcrdma2_roce", "ethertype", 0x8915, 40)

-- iWARP. A packet may have several messages.

local ddp = {
  opcode = Field.new("iwarp_rdma.opcode"), last = Field.new("iwarp_ddp.last_flag"),
  offset = Field.new("iwarp_ddp.mo"), number = Field.new("iwarp_ddp.msn"),
}

local function on_iwarp(tvb, pinfo, root)
  local function latest(name) return select(-1, ddp[name]()) end
  local opcode, offset = latest("opcode"), latest("offset")
  if not (opcode and offset) or opcode.value < 3 or opcode.value > 6 then return false end
  local hosts = hosts_of(pinfo)
  local side = side_of(("%s%d:%d"):format(hosts.here, pinfo.src_port, pinfo.dst_port))
  side.partner = side_of(("%s%d:%d"):format(hosts.there, pinfo.dst_port, pinfo.src_port))
  local place = latest("last").value and "last" or "middle"
  if offset.value == 0 then
    place = place == "last" and "only" or "first"
  elseif place == "last" and not side.send then
    place = "only" -- Wireshark has put the segments together.
  end
  local id = ("%d/%d/%d"):format(pinfo.number, latest("number").value, offset.value)
  return on_send(tvb, pinfo, root, side, hosts, id, place, nil)
end

proto:register_heuristic("infiniband.payload", on_infiniband)
proto:register_heuristic("iwarp_ddp_rdmap", on_iwarp)

-- Wireshark offers a payload first to the dissector that took one last. Its dissector of version one
-- takes RDMA_MSG, RDMA_NOMSG and RDMA_ERROR of any version, and shows nothing of another than one.
-- So messages that were not offered above are looked at once more, when the packet is dissected.

local rest = Proto("rpcrdma2_rest", "RPC-over-RDMA version two after version one")

function rest.dissector(tvb, pinfo, root)
  if bth.number ~= pinfo.number or bth.is_offered or bth.qp <= 1 then return end
  if tvb:len() >= bth.start + 4 then on_infiniband(tvb(bth.start, tvb:len() - bth.start - 4):tvb(), pinfo, root) end
end

register_postdissector(rest)
