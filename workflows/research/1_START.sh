# Makes a few documents in research-example/ and asks a question about them. A run that starts at PLAN leaves this out.
set -e
rm -rf research-example
mkdir -p research-example/sources
cd research-example/sources

cat > warehouse.txt <<'TEXT'
Mon  Night shift complete. 412 parcels ready at 05:30.
Tue  New labels since 06:00. The scanner refuses about one label in ten, those are typed in by hand.
Wed  Shift complete. 160 parcels left over from Tuesday, all with hand-typed labels.
Thu  Printer head changed at 14:00, no refused labels since. 45 parcels left over.
Fri  Nothing left over.
TEXT
cat > carrier.txt <<'TEXT'
Mon  Collection 06:00, 412 parcels.
Tue  Collection 06:00, 240 parcels. 31 returned: postcode does not exist.
Wed  Collection 06:00, 398 parcels. 52 returned: postcode does not exist.
Thu  Collection delayed to 09:00, road closed. 430 parcels.
Fri  Collection 06:00, 455 parcels.
TEXT
cat > support.txt <<'TEXT'
Tue  4 questions about deliveries.
Wed  37 customers ask where their parcel is. Most ordered on Monday evening.
Thu  58 customers. Several say that the postcode on the returned parcel is wrong by one digit.
Fri  12 customers.
TEXT
cat > menu.txt <<'TEXT'
Mon  Lentil soup. Tue  Pasta. Wed  Curry. Thu  Salad. Fri  Fish.
TEXT

# The question is --input where there is one.
echo "${ORCHESTRATOR_INPUT:-Why were so many parcels late this week, and is it over?}" > "$ORCHESTRATOR_OUTPUT_FILE"
echo '<reset cd="research-example">PLAN</reset>'
